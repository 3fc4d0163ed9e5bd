"""Bytes to messages: wherever the chunks are cut, the same lines come out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runner.acp.errors import AgentProtocolError
from services.runner.acp.lines import LineSplitter, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.binary(), st.lists(st.integers(0, 50)))
def test_the_lines_do_not_depend_on_the_chunks(data: bytes, cuts: list[int]) -> None:
    splitter, start = LineSplitter(1000), 0
    lines: list[bytes] = []
    for cut in cuts:
        lines += splitter.feed(data[start : start + cut])
        start += cut
    lines += splitter.feed(data[start:])
    assert [*lines, splitter.rest()] == data.split(b"\n")


def test_a_line_may_have_the_length_of_the_limit_and_no_more() -> None:
    splitter = LineSplitter(5)
    assert list(splitter.feed(b"123")) == []
    assert list(splitter.feed(b"45\n12345\n1")) == [b"12345", b"12345"]
    lines = splitter.feed(b"2\n123456\n")
    assert next(lines) == b"12"
    with pytest.raises(AgentProtocolError, match="more than 5 bytes"):
        next(lines)


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_a_message_is_one_line_and_comes_back(message: dict[str, object]) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(categories=["Cs", "L"])), st.text(st.characters(categories=["Cs", "L"]))
    )
)
def test_what_is_decoded_can_be_encoded_as_utf_8(message: dict[str, str]) -> None:
    decoded = decode(json.dumps(message).encode())
    assert decoded is not None
    json.dumps(decoded, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "line", [b"42", b"null", b"[1]", b'"x"', b"{", b"", b"\x00", b"[" * 10**5, b"9" * 10**4]
)
def test_what_is_no_object_is_noise(line: bytes) -> None:
    assert decode(line) is None


def test_what_is_no_number_is_null() -> None:
    assert decode(b'{"a": NaN, "b": -Infinity}') == {"a": None, "b": None}
