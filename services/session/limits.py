"""Bounds of a turn: as asked for with the session, and as they are in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import turn_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_range, seconds_of
from services.session.checks import stored

_LONGEST: Final = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LimitDefaults:
    """What is in force where a session asks for nothing; seconds."""

    max_duration: float
    max_silence: float


def check_limits(field: str, limits: turn_pb2.Limits) -> bytes:
    """The bounds as they are stored. InvalidArgument names the field."""
    check_duration(f"{field}.max_duration", limits.max_duration)
    check_duration(f"{field}.max_silence", limits.max_silence)
    if limits.max_tool_calls < 0:
        raise InvalidArgument.of(f"{field}.max_tool_calls", "must not be negative")
    return stored(limits)


def check_duration(field: str, duration: Duration) -> None:
    """A duration that is none, or at most a year."""
    check_range(field, seconds_of(field, duration), 0, _LONGEST)


def limits_in_force(asked: bytes, defaults: LimitDefaults) -> turn_pb2.Limits:
    """The stored bounds with defaults where there is none; zero tool calls are unbounded."""
    limits = turn_pb2.Limits.FromString(asked)
    if not limits.max_duration.ToNanoseconds():
        limits.max_duration.CopyFrom(_duration(defaults.max_duration))
    if not limits.max_silence.ToNanoseconds():
        limits.max_silence.CopyFrom(_duration(defaults.max_silence))
    return limits


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
