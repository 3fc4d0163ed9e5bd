"""Checks of what a request says. Each raises InvalidArgument that names the field."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sized
from typing import Final

from google.protobuf.duration_pb2 import Duration

from services.common.errors import InvalidArgument

MAX_ID: Final = 128
MAX_REQUEST_ID: Final = 255
MAX_PROJECT: Final = 63
DEFAULT_PROJECT: Final = "default"

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_MOST_NANOS: Final = 999_999_999
_PROJECT: Final = re.compile(r"[a-z0-9-]{1,63}")


def check_id(field: str, value: str) -> str:
    """An id of a session, turn, workspace, …: 1 to 128 of `A-Z a-z 0-9 _ -`."""
    if not _ID.fullmatch(value):
        raise InvalidArgument.of(field, f"must be 1 to {MAX_ID} of A-Z a-z 0-9 _ -")
    return value


def mint_id(prefix: str) -> str:
    """A new id such as `turn_3f9a…`, unguessable and unique."""
    return f"{prefix}_{secrets.token_hex(12)}"


def check_or_mint_id(field: str, value: str, prefix: str) -> str:
    """The caller's id if it gave one, else a new one."""
    return check_id(field, value) if value else mint_id(prefix)


def check_project(value: str, field: str = "project") -> str:
    """A project: 1 to 63 of `a-z 0-9 -`."""
    if not _PROJECT.fullmatch(value):
        raise InvalidArgument.of(field, f"must be 1 to {MAX_PROJECT} of a-z 0-9 -")
    return value


def check_secret(field: str, value: str) -> str:
    """The name of a secret. The error does not repeat it: it may be the secret itself."""
    if not _SECRET.fullmatch(value):
        raise InvalidArgument.of(field, "must name a secret: 1 to 128 of A-Z a-z 0-9 _ . -")
    return value


def check_request_id(value: str, field: str = "request_id") -> str:
    """An optional request id: at most 255 characters that can be stored."""
    check_text(field, value)
    if len(value) > MAX_REQUEST_ID:
        raise InvalidArgument.of(field, f"must have at most {MAX_REQUEST_ID} characters")
    return value


def check_present(field: str, value: str) -> str:
    """A text that must not be empty."""
    if not value.strip():
        raise InvalidArgument.of(field, "must not be empty")
    return check_text(field, value)


def check_text(field: str, value: str) -> str:
    """A text that PostgreSQL can store: without U+0000."""
    if "\0" in value:
        raise InvalidArgument.of(field, "must not contain U+0000")
    return value


def check_size(field: str, value: Sized, maximum: int, unit: str = "bytes") -> None:
    """At most `maximum` items; a str is measured by its UTF-8 bytes."""
    size = len(value.encode()) if isinstance(value, str) else len(value)
    if size > maximum:
        raise InvalidArgument.of(field, f"has {size} {unit}, at most {maximum} are accepted")


def check_range(field: str, value: float, minimum: float, maximum: float) -> None:
    """A number or a duration in seconds, ends included."""
    if not minimum <= value <= maximum:
        raise InvalidArgument.of(field, f"must be from {minimum:g} to {maximum:g}")


def seconds_of(field: str, duration: Duration) -> float:
    """The length of a duration. Not ToTimedelta, which overflows for what a client may send."""
    if abs(duration.nanos) > _MOST_NANOS or duration.seconds * duration.nanos < 0:
        raise InvalidArgument.of(
            field, "is not a duration: nanos must be below a second, and of the same sign"
        )
    return float(duration.seconds + duration.nanos / 1e9)


def in_own_words(message: str) -> str:
    """What a validator said, without what pydantic puts before it."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
