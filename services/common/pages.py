"""Page tokens: opaque to clients, checked when they come back."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final, Self

from services.common.errors import InvalidArgument

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 1000
_MAX_TOKEN: Final = 4096


@dataclass(frozen=True, slots=True)
class PageToken:
    """Where the next page starts: the sort key of the last item given, for one listing.

    `listing` is whatever must stay the same between pages (the RPC and its filters);
    a token of another listing is refused instead of skipping items silently.
    """

    listing: str
    key: tuple[str | int, ...]

    def encode(self) -> str:
        """The token as clients see it."""
        text = json.dumps([self.listing, *self.key], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(
        cls,
        token: str,
        listing: str,
        types: tuple[type[str | int], ...] = (str,),
        field: str = "page_token",
    ) -> Self | None:
        """The token that this listing gave, None for the first page; else InvalidArgument.

        `types` are those of the sort key's columns, so that a forged token never reaches SQL.
        """
        if not token:
            return None
        values = _values(token)
        if values is None or values[:1] != [listing] or not _matches(values[1:], types):
            raise InvalidArgument.of(field, "is not a token that this listing gave")
        return cls(listing, tuple(values[1:]))


def page_size(
    field: str,
    requested: int,
    default: int = DEFAULT_PAGE_SIZE,
    maximum: int = MAX_PAGE_SIZE,
) -> int:
    """How many items to give: 0 asks for the default, more than the maximum is cut to it."""
    if requested < 0:
        raise InvalidArgument.of(field, "must not be negative")
    return min(requested or default, maximum)


def _values(token: str) -> list[Any] | None:
    if len(token) > _MAX_TOKEN:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None
    return values if isinstance(values, list) else None


def _matches(key: list[Any], types: tuple[type[str | int], ...]) -> bool:
    return [type(value) for value in key] == list(types) and all(map(_storable, key))


def _storable(value: str | int) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**63
    return "\0" not in value and value.isprintable()
