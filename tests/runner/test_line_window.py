"""Lines of a file that comes in parts."""

from __future__ import annotations

import pytest

from services.runner.acp.rpc import RequestError
from services.runner.files import MAX_READ_BYTES, LineWindow

TEXT = b"one\ntwo\n\nfour\r\nlast"


def window(data: bytes, size: int, first: int, limit: int | None) -> LineWindow:
    """After all parts of this size."""
    window = LineWindow(first, limit)
    for at in range(0, len(data), size):
        window.feed(data[at : at + size])
    return window


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("first", "limit", "expected"),
    [
        (1, None, TEXT),
        (1, 2, b"one\ntwo\n"),
        (2, 2, b"two\n\n"),
        (4, None, b"four\r\nlast"),
        (5, 1, b"last"),
        (5, 9, b"last"),
        (6, None, b""),
        (2, 0, b""),
    ],
)
def test_the_lines_are_the_same_in_whatever_parts_they_come(
    size: int, first: int, limit: int | None, expected: bytes
) -> None:
    assert bytes(window(TEXT, size, first, limit).lines) == expected


def test_nothing_more_is_read_once_the_lines_are_there() -> None:
    assert window(b"one\ntwo\nthree\n", 4, 1, 2).complete
    assert not window(b"one\ntwo", 4, 1, 2).complete


def test_what_is_too_much_for_one_answer_is_refused() -> None:
    part = b"x" * 1_000_000 + b"\n"
    with pytest.raises(RequestError, match="ask for some of the lines"):
        window(part * 5, len(part), 1, None)
    assert len(window(part * 5, len(part), 2, 4).lines) <= MAX_READ_BYTES
