"""Frames, and the engine's own headers around them, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.workspace.docker.exec.ends import OutputEnd
from services.workspace.docker.exec.frames import LONGEST_PIECE, Nonsense, Reader, Report, read_ready
from services.workspace.docker.exec.multiplexed import Demultiplexer

Pieces = list[tuple[int, bytes]]


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=40))), st.integers(1, 50))
def test_pieces_are_put_together_wherever_they_are_cut(pieces: Pieces, size: int) -> None:
    sent = b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4) + data for stream, data in pieces)
    demultiplexer, received = Demultiplexer(), {1: b"", 2: b""}
    for at in range(0, len(sent), size):
        for stream, data in demultiplexer.feed(sent[at : at + size]):
            received[stream] += data
    assert received == {
        wanted: b"".join(data for stream, data in pieces if stream == wanted) for wanted in (1, 2)
    }


@given(st.lists(st.tuples(st.sampled_from(Report), st.binary(max_size=40))), st.integers(1, 50))
def test_frames_are_put_together_wherever_they_are_cut(said: list[tuple[Report, bytes]], size: int) -> None:
    sent = b"".join(report.value + len(payload).to_bytes(4) + payload for report, payload in said)
    reader = Reader()
    heard = [frame for at in range(0, len(sent), size) for frame in reader.feed(sent[at : at + size])]
    assert heard == said


@pytest.mark.parametrize("words", [b"OCI runtime exec failed", b"h\xff\xff\xff\xff"])
def test_what_no_helper_says_is_told_as_it_is(words: bytes) -> None:
    with pytest.raises(Nonsense) as told:
        list(Reader().feed(words))
    assert str(told.value) == words.decode(errors="replace")


def test_a_helper_of_another_version_is_told_as_that() -> None:
    with pytest.raises(Nonsense, match="version 1"):
        read_ready((1).to_bytes(4) + (5).to_bytes(8))


async def test_small_pieces_are_joined_and_large_ones_are_not() -> None:
    taken: list[int] = []
    end = OutputEnd(taken.append, lambda: None)
    for _ in range(LONGEST_PIECE):
        end.feed(b"ab")
    end.finish()
    pieces = [end.read_now(nobody_writes=True) for _ in range(3)]
    assert [len(piece or b"") for piece in pieces] == [LONGEST_PIECE, LONGEST_PIECE, 0]
    assert taken == [LONGEST_PIECE, LONGEST_PIECE]
