"""Texts of agents, made fit to be stored."""

from __future__ import annotations

from typing import Final

MAX_TEXT_BYTES: Final = 4096


def storable(text: str, most: int = MAX_TEXT_BYTES) -> str:
    """The text without what no database takes (U+0000, lone surrogates), cut to `most` bytes."""
    data = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return data[:most].decode("utf-8", "ignore")
