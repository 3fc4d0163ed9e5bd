"""Listings from the newest row backwards: where their pages begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from services.common.pages import PageToken

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


def token(listing: str, create_time: datetime, name: str) -> str:
    """Names the last row of a page by when it was made and its id."""
    return PageToken(listing, ((create_time - _EPOCH) // _MICROSECOND, name)).encode()


def after(page_token: str, listing: str) -> tuple[datetime, str]:
    """The sort key behind which a page begins, the first one behind the latest time; InvalidArgument."""
    decoded = PageToken.decode(page_token, listing, (int, str))
    if decoded is None:
        return _LATEST, ""
    microseconds, name = decoded.key
    # A token is not signed: it must not lead to a time that does not exist.
    since_epoch = max(0, min(int(microseconds), (_LATEST - _EPOCH) // _MICROSECOND))
    return _EPOCH + _MICROSECOND * since_epoch, str(name)
