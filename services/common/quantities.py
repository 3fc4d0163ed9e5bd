"""Sizes as people write them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def told_bytes(size: int) -> str:
    """`256 MiB`; in the largest unit of which it is a whole number, so that nothing is lost."""
    return next((f"{size // unit} {name}" for unit, name in _UNITS if size and size % unit == 0), f"{size} B")
