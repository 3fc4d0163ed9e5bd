"""Permission requests that wait for their answers beside the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from services.runner.acp.lines import Message
from services.runner.acp.messages import PermissionOutcome
from services.runner.acp.rpc import Answer

T = TypeVar("T")

WITHDRAWN: Message = {"outcome": {"outcome": "cancelled"}}


class Gates:
    """One gate per open question. A withdrawn session's gates resolve withdrawn and nothing else."""

    def __init__(self) -> None:
        """None open, none withdrawn."""
        self._open: dict[str, set[asyncio.Future[Any]]] = {}
        self._withdrawn: set[str] = set()

    def withdraw(self, session_id: str) -> None:
        """Close the session's gates, and all that follow until `allow`."""
        self._withdrawn.add(session_id)
        for gate in self._open.get(session_id, ()):
            gate.cancel()

    def allow(self, session_id: str) -> None:
        """Gates may open again."""
        self._withdrawn.discard(session_id)

    def close(self) -> None:
        """Close all gates."""
        for gate in [gate for gates in self._open.values() for gate in gates]:
            gate.cancel()

    def is_withdrawn(self, session_id: str) -> bool:
        """Whether a gate that opened now would be closed at once."""
        return session_id in self._withdrawn

    def open(
        self, session_id: str, answer: Awaitable[T | None], told: Callable[[T | None], Message]
    ) -> Answer:
        """Begin to wait for the answer; what the agent is told once there is one, or none wanted any more."""
        gate = asyncio.ensure_future(answer)
        self._open.setdefault(session_id, set()).add(gate)
        if self.is_withdrawn(session_id):
            gate.cancel()
        return partial(self._settle, session_id, gate, told)

    async def _settle(
        self, session_id: str, gate: asyncio.Future[T | None], told: Callable[[T | None], Message]
    ) -> Message:
        try:
            await asyncio.wait({gate})
        finally:
            gate.cancel()
            self._open[session_id].discard(gate)
        if gate.cancelled() or self.is_withdrawn(session_id):
            return told(None)
        return told(gate.result())


def outcome(option_id: PermissionOutcome) -> Message:
    """A decision in the protocol's words."""
    if option_id is None:
        return WITHDRAWN
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
