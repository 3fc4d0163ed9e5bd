"""Bytes between tasks."""

from __future__ import annotations

import asyncio

import pytest

from services.runner.pipes import Pipe, Tail, TextTail
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


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_text_tail_begins_between_characters_however_it_arrives(size: int) -> None:
    data = "aäß€😀".encode()
    for limit in range(len(data) + 2):
        tail = TextTail(limit)
        for at in range(0, len(data), size):
            tail.add(data[at : at + size])
        tail.end()
        assert "aäß€😀".endswith(tail.text)
        assert len(tail.text.encode()) <= limit
        assert tail.truncated == (limit < len(data))
        assert limit < len(data) or tail.text == "aäß€😀"


def test_a_text_tail_shows_whole_characters_and_replaces_what_is_none() -> None:
    tail = TextTail(100)
    tail.add("ä".encode()[:1])
    assert tail.text == ""
    tail.add("ä".encode()[1:] + b"\xff" + "€".encode()[:2])
    assert tail.text == "ä�"
    tail.end()
    assert tail.text == "ä��"
