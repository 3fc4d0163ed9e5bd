"""What a turn waits for before its agent has the prompt, told where no terminal shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
from moorage.common.v1 import turn_pb2

from services.cli.activity import Look

# Most turns have begun by then; each reason is told when it still stands at the next look.
_PAUSE: Final = 1.0
_BEFORE_THE_AGENT: Final = (
    turn_pb2.TURN_PHASE_WAITING_FOR_RUNNER,
    turn_pb2.TURN_PHASE_PREPARING_WORKSPACE,
)


@asynccontextmanager
async def told(tell: Callable[[str], None], look: Look) -> AsyncIterator[None]:
    """Within the block `tell` hears each reason that lasts, once, until an agent has been started."""
    telling = asyncio.create_task(_tell(tell, look))
    try:
        yield
    finally:
        telling.cancel()
        [end] = await asyncio.gather(telling, return_exceptions=True)
    # A fault of the program, when there is no other.
    if isinstance(end, Exception):
        raise end


async def _tell(tell: Callable[[str], None], look: Look) -> None:
    seen, said = "", ""
    while True:
        await asyncio.sleep(_PAUSE)
        try:
            turn = (await look()).turn
        except grpc.aio.AioRpcError:
            # Not admitted yet, or the service is away, which is told by whoever streams.
            continue
        if turn.state != turn_pb2.TURN_STATE_QUEUED and turn.phase not in _BEFORE_THE_AGENT:
            return
        reason = turn.waiting_reason
        if reason == seen and reason not in ("", said):
            tell(f"the turn waits{'' if reason.startswith('for ') else ':'} {reason}")
            said = reason
        seen = reason
