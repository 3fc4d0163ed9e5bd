"""A checker of lease histories: it reads only calls and answers, and knows nothing of how owner works.

Times of calls are of the callers' wall clock, times in answers of the database's. Both run on one
machine here, so they are the same clock.
"""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
    """One call and its answer. `token`, `acquired_at`, `expires_at`, `named` as far as call or answer have them."""

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


@dataclass(slots=True)
class _Grant:
    """What the answers say of one token of one resource."""

    token: int
    holder: str
    ttl: timedelta
    acquired_at: datetime
    acquisitions: list[Event] = field(default_factory=list)
    renewals: list[Event] = field(default_factory=list)
    releases: list[Event] = field(default_factory=list)
    unanswered_releases: list[Event] = field(default_factory=list)

    @property
    def began(self) -> datetime:
        """When the first call was made that was answered with it."""
        return min(event.began for event in self.acquisitions)

    @property
    def known(self) -> datetime:
        """When the first answer had come that gave it."""
        return min(event.ended for event in self.acquisitions)

    @property
    def end(self) -> datetime:
        """When it ended; the earliest possible time if a release was not answered."""
        ends = [_end(event) for event in self.releases] or [
            max(_end(event) for event in (*self.acquisitions, *self.renewals))
        ]
        return min(*ends, *(event.began for event in self.unanswered_releases), ends[0])


@dataclass(slots=True)
class _Resource:
    """All that is known of one resource."""

    events: Sequence[Event]
    grants: dict[int, _Grant] = field(default_factory=dict)

    def unanswered_acquisitions(self, before: datetime) -> list[Event]:
        """Calls that may have got a lease which no answer tells of."""
        return [
            event
            for event in self.events
            if event.call == "acquire" and event.answer is Answer.UNKNOWN and event.began <= before
        ]


def violations(history: Sequence[Event]) -> list[str]:
    """What in this history cannot be, in words; empty for a good one.

    Calls of UNKNOWN answer (acquire and release only) may have taken effect at any time since.
    """
    by_resource: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        by_resource[event.resource].append(event)
    return [problem for events in by_resource.values() for problem in _check(_Resource(events))]


def _check(resource: _Resource) -> Iterator[str]:
    for event in resource.events:
        if event.answer is Answer.GRANTED:
            yield from _add_acquisition(resource.grants, event)
    for event in resource.events:
        yield from _add_other(resource.grants, event)
    ordered = [resource.grants[token] for token in sorted(resource.grants)]
    for grant in ordered:
        yield from _check_alone(grant, resource)
    for earlier, later in itertools.pairwise(ordered):
        yield from _check_order(earlier, later)
    for event in resource.events:
        yield from _CHECKS.get(event.answer, _accept)(event, resource)


def _add_acquisition(grants: dict[int, _Grant], event: Event) -> Iterator[str]:
    assert event.acquired_at is not None
    if event.token <= 0:
        yield f"a token that is not positive: {event}"
    grant = grants.setdefault(event.token, _Grant(event.token, event.holder, event.ttl, event.acquired_at))
    grant.acquisitions.append(event)
    ids = {(each.holder, each.request_id, each.acquired_at) for each in grant.acquisitions}
    if len(ids) > 1 or (len(grant.acquisitions) > 1 and not event.request_id):
        yield f"token {event.token} was given twice: {grant.acquisitions}"


def _add_other(grants: dict[int, _Grant], event: Event) -> Iterator[str]:
    grant = grants.get(event.token)
    is_mine = grant is not None and grant.holder == event.holder and grant.acquired_at <= event.ended
    if event.answer in (Answer.RENEWED, Answer.RELEASED) and not is_mine:
        yield f"{event.call} by somebody who was not granted it: {event}"
    elif grant is not None and event.answer is Answer.RENEWED:
        grant.renewals.append(event)
    elif grant is not None and event.answer is Answer.RELEASED:
        grant.releases.append(event)
    elif grant is not None and is_mine and (event.call, event.answer) == ("release", Answer.UNKNOWN):
        grant.unanswered_releases.append(event)


def _check_alone(grant: _Grant, resource: _Resource) -> Iterator[str]:
    yield from _check_chain(grant)
    if len({_end(event) for event in grant.releases}) > 1:
        yield f"releases of token {grant.token} disagree about its end: {grant.releases}"
    if grant.acquired_at > grant.known:
        yield f"granted after its answer: {grant.acquisitions}"
    if grant.acquired_at < grant.began and not resource.unanswered_acquisitions(grant.began):
        yield f"granted before it was asked for: {grant.acquisitions}"
    for event in grant.acquisitions:
        if _end(event) <= event.began:
            yield f"a lease that had ended was given as live: {event}"


def _check_chain(grant: _Grant) -> Iterator[str]:
    """Each renewal was judged before the end that was in force until then: none revived the lease."""
    end = grant.acquired_at + grant.ttl
    for event in sorted(grant.renewals, key=_end):
        judged_at = _end(event) - grant.ttl
        if judged_at >= end:
            yield f"revived: it had ended at {end} and was renewed at {judged_at}: {event}"
        if not event.began <= judged_at <= event.ended:
            yield f"not extended by its ttl from the time of the call: {event}"
        end = _end(event)
    for event in grant.renewals:
        if any(event.began > release.ended for release in grant.releases):
            yield f"renewed after its release: {event}"


def _check_order(earlier: _Grant, later: _Grant) -> Iterator[str]:
    if later.acquired_at < earlier.end:
        yield f"two leases at once: {earlier} and {later}"
    if later.known < earlier.began:
        yield f"a later grant has a lower token: {earlier} and {later}"
    for event in earlier.renewals:
        if event.began > later.known:
            yield f"renewed though token {later.token} had been granted: {event}"


def _check_held(event: Event, resource: _Resource) -> Iterator[str]:
    if _end(event) <= event.began:
        yield f"refused because of a lease that had ended: {event}"
    holders = {grant.holder for grant in resource.grants.values() if grant.acquired_at <= event.ended}
    holders |= {each.holder for each in resource.unanswered_acquisitions(event.ended)}
    if event.named not in holders:
        yield f"refused because of a lease that nobody has: {event}"


def _check_not_found(event: Event, resource: _Resource) -> Iterator[str]:
    if any(grant.known < event.began for grant in resource.grants.values()):
        yield f"not found though it had been granted: {event}"


def _check_stale(event: Event, resource: _Resource) -> Iterator[str]:
    mine = _mine(event, resource)
    # A token that was guessed before it was granted is stale, too.
    if mine is None or mine.acquired_at > event.began or resource.unanswered_acquisitions(event.ended):
        return
    others = [grant for grant in resource.grants.values() if grant.token > event.token]
    if not any(grant.acquired_at <= event.ended for grant in others):
        yield f"stale though it is the newest: {event}"


def _check_expired(event: Event, resource: _Resource) -> Iterator[str]:
    mine = _mine(event, resource)
    if mine is None or mine.acquired_at > event.ended:
        yield f"expired though it was not granted: {event}"
        return
    if mine.end > event.ended:
        yield f"expired before its end at {mine.end}: {event}"
    others = [grant for grant in resource.grants.values() if grant.token > event.token]
    if any(grant.known < event.began for grant in others):
        yield f"expired though another was granted before the call: {event}"


def _check_ended(event: Event, resource: _Resource) -> Iterator[str]:
    def is_same(each: Event) -> bool:
        return (each.holder, each.request_id) == (event.holder, event.request_id)

    mine = [grant for grant in resource.grants.values() if any(map(is_same, grant.acquisitions))]
    if not mine and not any(map(is_same, resource.unanswered_acquisitions(event.ended))):
        yield f"said to have ended, and never granted: {event}"
    if any(grant.end > event.ended for grant in mine):
        yield f"said to have ended before its end: {event}"


def _mine(event: Event, resource: _Resource) -> _Grant | None:
    grant = resource.grants.get(event.token)
    return grant if grant and grant.holder == event.holder else None


def _accept(_event: Event, _resource: _Resource) -> Iterator[str]:
    return iter(())


def _end(event: Event) -> datetime:
    assert event.expires_at is not None
    return event.expires_at


_CHECKS: dict[Answer, Callable[[Event, _Resource], Iterator[str]]] = {
    Answer.HELD: _check_held,
    Answer.NOT_FOUND: _check_not_found,
    Answer.STALE: _check_stale,
    Answer.EXPIRED: _check_expired,
    Answer.ENDED: _check_ended,
}
