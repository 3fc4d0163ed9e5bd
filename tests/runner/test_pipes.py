"""Bytes between tasks."""

from __future__ import annotations

import asyncio

from services.runner.pipes import Pipe, Tail
from services.runner.texts import storable


async def test_chunks_come_in_order_and_then_the_end() -> None:
    pipe = Pipe()
    await pipe.put(b"a")
    await pipe.put(b"b")
    pipe.close()
    assert [await pipe.get(), await pipe.get(), await pipe.get(), await pipe.get()] == [b"a", b"b", b"", b""]


async def test_a_reader_that_does_not_read_makes_the_writer_wait() -> None:
    pipe = Pipe(max_chunks=1)
    await pipe.put(b"a")
    writing = asyncio.create_task(pipe.put(b"b"))
    await asyncio.sleep(0)
    assert not writing.done()
    assert await pipe.get() == b"a"
    await writing
    assert await pipe.get() == b"b"


async def test_discarding_frees_the_writer() -> None:
    pipe = Pipe(max_chunks=1)
    await pipe.put(b"a")
    writing = asyncio.create_task(pipe.put(b"b"))
    await asyncio.sleep(0)
    pipe.discard()
    await writing
    await pipe.put(b"c")
    pipe.close()
    assert await pipe.get() == b""


def test_a_tail_keeps_the_last_bytes_whatever_they_are() -> None:
    tail = Tail(max_bytes=4)
    tail.add(b"abc")
    tail.add(b"def\xff")
    assert tail.text == "def�"


def test_texts_are_made_storable_and_cut_between_characters() -> None:
    assert storable("a\0b\ud800c") == "a�b?c"
    assert storable("ä" * 10, 5) == "ää"
