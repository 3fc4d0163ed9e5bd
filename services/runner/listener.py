"""What the runner does with what an agent says: records of the turn, answers by the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from moorage.common.v1.record_pb2 import RecordBody
from moorage.common.v1.turn_pb2 import ApprovalPolicy

from services.common.clock import Clock
from services.runner.acp.coalescer import Coalescer
from services.runner.acp.messages import PermissionOutcome, PermissionRequest, SessionUpdate
from services.runner.acp.records import to_body
from services.runner.approvals import choose
from services.runner.interrupts import background
from services.runner.limits import LimitWatch
from services.runner.records import RecordBuffer, error_body


class TurnListener:
    """Listens to an agent for one turn; what is said outside of a turn belongs to none."""

    def __init__(
        self, policy: ApprovalPolicy.ValueType, limits: LimitWatch, records: RecordBuffer, clock: Clock
    ) -> None:
        """Records go to the buffer, merged where they are pieces of one text."""
        self._policy = policy
        self._limits = limits
        self._text = Coalescer(records.add, clock)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Let text out in time; all of it is out when the block has been left without an error."""
        async with background(self._text.run()):
            yield
        await self._text.flush()

    async def on_update(self, update: SessionUpdate) -> None:
        """See AgentHandler: record it, unless it is history."""
        body = None if update.replayed else _body(update)
        if body is not None:
            self._limits.count(body)
            await self._text.put(body)

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        """See AgentHandler: answer at once."""
        answer: asyncio.Future[PermissionOutcome] = asyncio.get_running_loop().create_future()
        answer.set_result(choose(self._policy, request.options))
        return answer


def _body(update: SessionUpdate) -> RecordBody | None:
    try:
        return to_body(update)
    except ValueError as error:
        # E.g. lone surrogates, which JSON can say and nothing can store.
        return error_body("RECORD_NOT_STORABLE", f"an update of the agent cannot be stored: {error}")
