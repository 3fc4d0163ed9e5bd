"""Merging text: what goes out, when, and under which message id (R4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.common.v1.content_pb2 import ContentBlock, ImageContent, TextContent
from moorage.common.v1.record_pb2 import AgentMessage, Plan, RecordBody, Thought

from services.common.clock import ManualClock
from services.runner.acp.coalescer import Coalescer, cut

PLAN = RecordBody(plan=Plan())
IMAGE = ContentBlock(image=ImageContent(mime_type="image/png", data=b"png"))


def said(text: str, message_id: str = "") -> RecordBody:
    content = ContentBlock(text=TextContent(text=text))
    return RecordBody(agent_message=AgentMessage(message_id=message_id, content=content))


def thought(text: str, message_id: str = "") -> RecordBody:
    return RecordBody(
        thought=Thought(message_id=message_id, content=ContentBlock(text=TextContent(text=text)))
    )


def texts(bodies: list[RecordBody]) -> list[str]:
    """The kinds' first letters and the texts."""
    shown = []
    for body in bodies:
        kind = str(body.WhichOneof("body"))
        piece = body.thought if kind == "thought" else body.agent_message
        shown.append(f"{kind[0]}:{piece.content.text.text}")
    return shown


class Bench:
    """A coalescer, its clock, and what came out."""

    def __init__(self) -> None:
        self.out: list[RecordBody] = []
        self.clock = ManualClock()
        self.coalescer = Coalescer(self._take, self.clock)

    async def put(self, *bodies: RecordBody) -> None:
        for body in bodies:
            await self.coalescer.put(body)

    async def _take(self, body: RecordBody) -> None:
        self.out.append(body)

    @asynccontextmanager
    async def timer(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.coalescer.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_the_first_piece_goes_out_at_once_and_the_others_together() -> None:
    bench = Bench()
    await bench.put(said("a"), said("b"), said("c"))
    assert texts(bench.out) == ["a:a"]
    await bench.coalescer.flush()
    assert texts(bench.out) == ["a:a", "a:bc"]
    assert len({body.agent_message.message_id for body in bench.out}) == 1


async def test_text_waits_for_100_ms_from_its_first_piece() -> None:
    bench = Bench()
    async with bench.timer():
        await bench.put(said("a"), said("b"))
        await bench.clock.until_sleeping()
        await bench.clock.advance(0.06)
        await bench.put(said("c"))
        await bench.clock.advance(0.039)
        assert texts(bench.out) == ["a:a"]
        await bench.clock.advance(0.002)
        assert texts(bench.out) == ["a:a", "a:bc"]
        await bench.put(said("d"))
        await bench.clock.until_sleeping()
        await bench.clock.advance(0.1)
        assert texts(bench.out) == ["a:a", "a:bc", "a:d"]


async def test_4_kib_go_out_at_once() -> None:
    bench = Bench()
    await bench.put(said("a"), said("x" * 4095), said("ü"), said("z"))
    assert texts(bench.out) == ["a:a", "a:" + "x" * 4095 + "ü"]


async def test_anything_else_is_a_boundary_and_keeps_its_place() -> None:
    bench = Bench()
    await bench.put(said("a"), said("b"), PLAN, said("c"), said("d"), thought("e"), thought("f"), said("g"))
    await bench.coalescer.flush()
    assert texts(bench.out) == ["a:a", "a:b", "p:", "a:c", "a:d", "t:e", "t:f", "a:g"]
    ids = [body.agent_message.message_id or body.thought.message_id for body in bench.out]
    assert ids[0] == ids[1] != ids[3] == ids[4] != ids[5] == ids[6] != ids[7]
    assert ids[7] != ids[4]
    assert all(message_id.startswith("message_") for message_id in ids if message_id)


async def test_the_agents_own_message_ids_are_kept_and_separate() -> None:
    bench = Bench()
    await bench.put(
        said("a", "1"), said("b", "1"), said("c", "2"), said("d", "2"), PLAN, said("e", "2"), said("f")
    )
    await bench.coalescer.flush()
    assert texts(bench.out) == ["a:a", "a:b", "a:c", "a:d", "p:", "a:e", "a:f"]
    ids = [body.agent_message.message_id for body in bench.out]
    assert ids[:-1] == ["1", "1", "2", "2", "", "2"]
    assert ids[-1].startswith("message_")


async def test_other_content_belongs_to_the_message_and_keeps_its_place() -> None:
    bench = Bench()
    image = RecordBody(agent_message=AgentMessage(content=IMAGE))
    await bench.put(said("a"), said("b"), image, said("c"), image)
    kinds = [body.agent_message.content.WhichOneof("block") for body in bench.out]
    assert kinds == ["text", "text", "image", "text", "image"]
    assert len({body.agent_message.message_id for body in bench.out}) == 1


@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600"])
async def test_no_record_reaches_256_kib(character: str) -> None:
    bench = Bench()
    long_id = "m" * 1_000_000
    await bench.put(said(character * 300_000, long_id), said(character * 300_000, long_id))
    assert all(body.ByteSize() < 256 * 1024 for body in bench.out)
    assert "".join(body.agent_message.content.text.text for body in bench.out) == character * 600_000


async def test_a_timer_that_is_cancelled_in_the_sink_loses_nothing() -> None:
    bench = Bench()
    stuck = asyncio.Event()

    async def take(body: RecordBody) -> None:
        if len(bench.out) == 1 and not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        bench.out.append(body)

    coalescer = Coalescer(take, bench.clock)
    timer = asyncio.create_task(coalescer.run())
    for text in "abc":
        await coalescer.put(said(text))
    await bench.clock.until_sleeping()
    await bench.clock.advance(0.2)
    await stuck.wait()
    timer.cancel()
    await asyncio.wait({timer})
    await coalescer.flush()
    assert texts(bench.out) == ["a:a", "a:bc"]


async def test_a_sink_that_fails_fails_the_timer() -> None:
    clock = ManualClock()
    out: list[RecordBody] = []

    async def take(body: RecordBody) -> None:
        if out:
            raise LookupError("the journal is gone")
        out.append(body)

    coalescer = Coalescer(take, clock)
    timer = asyncio.create_task(coalescer.run())
    await coalescer.put(said("a"))
    await coalescer.put(said("b"))
    await clock.until_sleeping()
    await clock.advance(0.1)
    with pytest.raises(LookupError):
        await timer


@settings(deadline=None)
@given(st.text(), st.integers(4, 9))
def test_cutting_loses_nothing_and_keeps_the_limit(text: str, limit: int) -> None:
    pieces = cut(text, limit)
    assert "".join(pieces) == text
    assert all(0 < len(piece.encode()) <= limit for piece in pieces)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("mtp"), st.text(max_size=5), st.sampled_from(["", "1", "2"]))))
async def test_whatever_comes_is_kept_in_order(updates: list[tuple[str, str, str]]) -> None:
    bench = Bench()
    make = {"m": said, "t": thought, "p": lambda text, message_id: PLAN}
    for kind, text, message_id in updates:
        await bench.put(make[kind](text, message_id))
    await bench.coalescer.flush()
    shown = [f"{kind.replace('m', 'a')}:{text if kind != 'p' else ''}" for kind, text, _ in updates]
    assert joined([entry for entry in shown if entry not in ("a:", "t:")]) == joined(texts(bench.out))


def joined(shown: list[str]) -> list[str]:
    """Beside each other, the same kind is one entry."""
    merged: list[str] = []
    for entry in shown:
        if merged and merged[-1][0] == entry[0] != "p":
            merged[-1] += entry[2:]
        else:
            merged.append(entry)
    return merged
