"""Sizes and times as people type them."""

from __future__ import annotations

import re
from typing import Final

import typer
from google.protobuf.duration_pb2 import Duration

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([a-z]*)", re.IGNORECASE)
_SIZES: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_TIMES: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def bytes_of(flag: str, text: str) -> int:
    """`256m`: so many bytes; suffixes are powers of 1024."""
    return round(_value(flag, text, _SIZES, "a size such as 256m or 1g"))


def duration_of(flag: str, text: str) -> Duration:
    """`90s`, `30m`, `2h` or `7d`."""
    seconds = _value(flag, text, _TIMES, "a time such as 30m, 2h or 7d")
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def told_duration(duration: Duration) -> str:
    """The other way round, for people: `2h`, `90s`."""
    seconds = duration.ToNanoseconds() / 1e9
    for unit in ("d", "h", "m"):
        if seconds and seconds % _TIMES[unit] == 0:
            return f"{seconds / _TIMES[unit]:g}{unit}"
    return f"{seconds:g}s"


def _value(flag: str, text: str, units: dict[str, int], wanted: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        raise typer.BadParameter(f"{text} is not {wanted}", param_hint=flag)
    return float(match[1]) * units[match[2].lower()]
