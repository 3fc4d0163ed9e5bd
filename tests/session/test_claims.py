"""The loop that works an outbox off: what is handed to it, at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.common.clock import ManualClock
from services.session.outbox.claims import ClaimLoop
from tests.conditions import eventually
from tests.fakes import Gate


class Outbox:
    """Nothing is due by itself; claims are handled, and handed back, when their gates open."""

    def __init__(self) -> None:
        self.handling, self.handing_back = Gate(), Gate()
        self.begun: list[int] = []

    async def claim(self, limit: int) -> Sequence[int]:
        return []

    async def next_due(self) -> float | None:
        return None

    async def handle(self, claim: int) -> None:
        self.begun.append(claim)
        await self.handling()

    async def hand_back(self, claim: int) -> None:
        await self.handing_back()


async def test_what_is_handed_over_at_once_waits_for_its_turn() -> None:
    outbox = Outbox()
    loop = ClaimLoop("testing", outbox, ManualClock())
    for claim in range(20):
        loop.hand_over(claim)
    running = asyncio.create_task(loop.run())
    for claim in range(20, 100):
        loop.hand_over(claim)
    await eventually(lambda: len(outbox.begun) == 32)
    outbox.handling.open.set()
    await eventually(lambda: outbox.begun == list(range(100)))
    running.cancel()
    await asyncio.wait({running})


async def test_whoever_hands_over_while_it_ends_is_not_disturbed() -> None:
    outbox = Outbox()
    loop = ClaimLoop("testing", outbox, ManualClock())
    running = asyncio.create_task(loop.run())
    loop.hand_over(1)
    await outbox.handling.reached.wait()
    running.cancel()
    await outbox.handing_back.reached.wait()
    loop.hand_over(2)
    outbox.handing_back.open.set()
    await asyncio.wait({running})
    loop.hand_over(3)
    assert running.cancelled()
    assert outbox.begun == [1]
