"""Histories of lease calls: what was asked when, and what was answered.

Times of calls are of the callers' wall clock, times in answers of the database's. Both run on one
machine here, so they are the same clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta


class Answer(enum.Enum):
    """How a call was answered."""

    GRANTED = "GRANTED"
    HELD = "HELD"
    ENDED = "ENDED"
    RENEWED = "RENEWED"
    NOT_FOUND = "NOT_FOUND"
    EXPIRED = "EXPIRED"
    STALE = "STALE"
    RELEASED = "RELEASED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Event:
    """One call and its answer: acquire, takeover, renew, release.

    `token`, `acquired_at`, `expires_at`, `named`, `replaced_until` as far as call or answer have them;
    `replaces` is the token that a takeover names.
    """

    call: str
    resource: str
    holder: str
    began: datetime
    ended: datetime
    answer: Answer
    token: int = 0
    request_id: str = ""
    ttl: timedelta = timedelta()
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    named: str = ""
    replaces: int = 0
    replaced_until: datetime | None = None

    @property
    def end(self) -> datetime:
        """The end of the lease that the answer tells."""
        assert self.expires_at is not None
        return self.expires_at


@dataclass(slots=True)
class Grant:
    """What the answers say of one token of one resource."""

    token: int
    holder: str
    ttl: timedelta
    acquired_at: datetime
    replaces: int
    acquisitions: list[Event] = field(default_factory=list)
    renewals: list[Event] = field(default_factory=list)
    releases: list[Event] = field(default_factory=list)
    unanswered_renewals: list[Event] = field(default_factory=list)
    # Releases, and takeovers that name it.
    unanswered_ends: list[Event] = field(default_factory=list)
    taken_at: datetime | None = None

    @property
    def began(self) -> datetime:
        """When the first call was made that was answered with it."""
        return min(event.began for event in self.acquisitions)

    @property
    def known(self) -> datetime:
        """When the first answer had come that gave it."""
        return min(event.ended for event in self.acquisitions)

    @property
    def told_end(self) -> datetime:
        """The latest end that its holder was told."""
        return max(event.end for event in (*self.acquisitions, *self.renewals))

    @property
    def end(self) -> datetime:
        """When it ended; the earliest possible time if some calls were not answered."""
        ends = [event.end for event in self.releases] or [self.told_end]
        taken = [] if self.taken_at is None else [self.taken_at]
        return min(*ends, *taken, *(event.began for event in self.unanswered_ends), ends[0])

    def extended_without_answer(self, after: datetime) -> datetime:
        """The latest end that renewals of unknown fate may have given it, if they were in time."""
        ends = [event.ended + self.ttl for event in self.unanswered_renewals if event.began < after]
        return max(ends, default=after)


@dataclass(slots=True)
class Resource:
    """All that is known of one resource."""

    events: Sequence[Event]
    grants: dict[int, Grant] = field(default_factory=dict)

    @property
    def ordered(self) -> list[Grant]:
        """Its grants by their tokens."""
        return [self.grants[token] for token in sorted(self.grants)]

    def unanswered_acquisitions(self, before: datetime) -> list[Event]:
        """Calls that may have got a lease which no answer tells of."""
        return [
            event
            for event in self.events
            if event.call in ("acquire", "takeover")
            and event.answer is Answer.UNKNOWN
            and event.began <= before
        ]

    def after(self, token: int) -> Iterator[Grant]:
        """The grants with higher tokens."""
        return (grant for grant in self.ordered if grant.token > token)
