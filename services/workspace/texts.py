"""Texts of strangers, like what git or a command complains about, as they can be stored and shown."""

from __future__ import annotations

import re
from typing import Final

_LONGEST_REASON: Final = 2000
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# PostgreSQL has no NUL in a text, and UTF-8 no half of a pair.
_NOT_STORED: Final = re.compile("[\0\ud800-\udfff]")
# What moves the cursor of who reads it.
_CONTROLS: Final = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f]")


def storable(text: str) -> str:
    """With each character that cannot be stored replaced."""
    return _NOT_STORED.sub(_REPLACEMENT, text)


def reason(text: str) -> str:
    """For a `state_reason`: storable, of at most 2000 characters, without control characters but line ends."""
    return _CONTROLS.sub(_REPLACEMENT, storable(text[:_LONGEST_REASON]))
