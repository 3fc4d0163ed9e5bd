"""Permission requests that wait for their answers beside the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from services.runner.acp.lines import Message
from services.runner.acp.messages import PermissionOutcome
from services.runner.acp.rpc import Answer

WITHDRAWN: Message = {"outcome": {"outcome": "cancelled"}}


class Gates:
    """One gate per open request. A withdrawn session's gates resolve `cancelled` and nothing else."""

    def __init__(self) -> None:
        """None open, none withdrawn."""
        self._open: dict[str, set[asyncio.Future[PermissionOutcome]]] = {}
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

    def open(self, session_id: str, answer: Awaitable[PermissionOutcome]) -> Answer:
        """Begin to wait for the answer; what the agent is told once there is one, or none wanted any more."""
        gate = asyncio.ensure_future(answer)
        self._open.setdefault(session_id, set()).add(gate)
        if self.is_withdrawn(session_id):
            gate.cancel()
        return partial(self._settle, session_id, gate)

    async def _settle(self, session_id: str, gate: asyncio.Future[PermissionOutcome]) -> Message:
        try:
            await asyncio.wait({gate})
        finally:
            gate.cancel()
            self._open[session_id].discard(gate)
        if gate.cancelled() or self.is_withdrawn(session_id):
            return WITHDRAWN
        return outcome(gate.result())


async def withdrawn() -> Message:
    """The answer to a request that came too late."""
    return WITHDRAWN


def outcome(option_id: PermissionOutcome) -> Message:
    """A decision in the protocol's words."""
    if option_id is None:
        return WITHDRAWN
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
