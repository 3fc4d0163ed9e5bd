"""A checker of lease histories: it reads only calls and answers, and knows nothing of how owner works."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from tests.races.lease_history import Answer, Event, Grant, Resource


def violations(history: Sequence[Event]) -> list[str]:
    """What in this history cannot be, in words; empty for a good one.

    Calls of UNKNOWN answer may have taken effect at any time since.
    """
    by_resource: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        by_resource[event.resource].append(event)
    return [problem for events in by_resource.values() for problem in _check(Resource(events))]


def _check(resource: Resource) -> Iterator[str]:
    for event in resource.events:
        if event.answer is Answer.GRANTED:
            yield from _add_acquisition(resource.grants, event)
    for event in resource.events:
        yield from _add_other(resource, event)
    for grant in resource.ordered:
        yield from _check_alone(grant, resource)
        yield from _check_takeover(grant, resource)
    for earlier, later in itertools.pairwise(resource.ordered):
        yield from _check_order(earlier, later)
    for event in resource.events:
        yield from _CHECKS.get(event.answer, _accept)(event, resource)


def _add_acquisition(grants: dict[int, Grant], event: Event) -> Iterator[str]:
    assert event.acquired_at is not None
    if event.token <= 0:
        yield f"a token that is not positive: {event}"
    grant = grants.setdefault(
        event.token, Grant(event.token, event.holder, event.ttl, event.acquired_at, event.replaces)
    )
    grant.acquisitions.append(event)
    ids = {(each.holder, each.request_id, each.acquired_at, each.replaces) for each in grant.acquisitions}
    if len(ids) > 1 or (len(grant.acquisitions) > 1 and not event.request_id):
        yield f"token {event.token} was given twice: {grant.acquisitions}"


def _add_other(resource: Resource, event: Event) -> Iterator[str]:
    if event.call == "takeover":
        _add_takeover(resource.grants, event)
        return
    grant = resource.grants.get(event.token)
    is_mine = grant is not None and grant.holder == event.holder and grant.acquired_at <= event.ended
    if event.answer in (Answer.RENEWED, Answer.RELEASED) and not (
        is_mine or _may_have_got_one(event, resource)
    ):
        yield f"{event.call} by somebody who was not granted it: {event}"
    elif grant is not None and is_mine and (found := _list_for(grant, event)) is not None:
        found.append(event)


def _may_have_got_one(event: Event, resource: Resource) -> bool:
    """Without knowing; then it guessed the token."""
    return any(each.holder == event.holder for each in resource.unanswered_acquisitions(event.ended))


def _list_for(grant: Grant, event: Event) -> list[Event] | None:
    return {
        ("renew", Answer.RENEWED): grant.renewals,
        ("renew", Answer.UNKNOWN): grant.unanswered_renewals,
        ("release", Answer.RELEASED): grant.releases,
        ("release", Answer.UNKNOWN): grant.unanswered_ends,
    }.get((event.call, event.answer))


def _add_takeover(grants: dict[int, Grant], event: Event) -> None:
    replaced = grants.get(event.replaces)
    if replaced is None:
        return
    if event.answer is Answer.GRANTED:
        replaced.taken_at = event.acquired_at
    elif event.answer is Answer.UNKNOWN:
        replaced.unanswered_ends.append(event)


def _check_alone(grant: Grant, resource: Resource) -> Iterator[str]:
    yield from _check_chain(grant)
    if len({event.end for event in grant.releases}) > 1:
        yield f"releases of token {grant.token} disagree about its end: {grant.releases}"
    if grant.acquired_at > grant.known:
        yield f"granted after its answer: {grant.acquisitions}"
    if grant.acquired_at < grant.began and not resource.unanswered_acquisitions(grant.began):
        yield f"granted before it was asked for: {grant.acquisitions}"
    for event in grant.acquisitions:
        if event.end <= event.began:
            yield f"a lease that had ended was given as live: {event}"


def _check_chain(grant: Grant) -> Iterator[str]:
    """Each renewal was judged before the end that was in force until then: none revived the lease."""
    end = grant.acquired_at + grant.ttl
    for event in sorted(grant.renewals, key=lambda each: each.end):
        judged_at = event.end - grant.ttl
        if judged_at >= max(end, grant.extended_without_answer(end)):
            yield f"revived: it had ended at {end} and was renewed at {judged_at}: {event}"
        if not event.began <= judged_at <= event.ended:
            yield f"not extended by its ttl from the time of the call: {event}"
        if grant.taken_at is not None and judged_at >= grant.taken_at:
            yield f"renewed after it was taken over: {event}"
        end = event.end
    for event in grant.renewals:
        if any(event.began > release.ended for release in grant.releases):
            yield f"renewed after its release: {event}"


def _check_takeover(grant: Grant, resource: Resource) -> Iterator[str]:
    """It replaced the newest token, and its taker knows until when the other one may act."""
    if not grant.replaces:
        return
    if any(grant.replaces < token < grant.token for token in resource.grants):
        yield f"took over token {grant.replaces}, which was not the newest: {grant.acquisitions}"
    until = grant.acquisitions[0].replaced_until
    replaced = resource.grants.get(grant.replaces)
    if replaced is not None and (until is None or until < _last_end(replaced)):
        yield f"told an end that is too early, {until}: {grant.acquisitions} of {replaced}"


def _last_end(grant: Grant) -> datetime:
    cut = [event.began for event in grant.unanswered_ends if event.call == "release"]
    return min(grant.told_end, *(event.end for event in grant.releases), *cut, grant.told_end)


def _check_order(earlier: Grant, later: Grant) -> Iterator[str]:
    if later.acquired_at < earlier.end:
        yield f"two leases at once: {earlier} and {later}"
    if later.known < earlier.began:
        yield f"a later grant has a lower token: {earlier} and {later}"
    for event in (*earlier.renewals, *earlier.releases):
        if event.began > later.known:
            yield f"{event.answer.value} though token {later.token} had been granted: {event}"


def _check_held(event: Event, resource: Resource) -> Iterator[str]:
    if event.end <= event.began:
        yield f"refused because of a lease that had ended: {event}"
    holders = {grant.holder for grant in resource.grants.values() if grant.acquired_at <= event.ended}
    holders |= {each.holder for each in resource.unanswered_acquisitions(event.ended)}
    if event.named not in holders:
        yield f"refused because of a lease that nobody has: {event}"


def _check_not_found(event: Event, resource: Resource) -> Iterator[str]:
    if any(grant.known < event.began for grant in resource.grants.values()):
        yield f"not found though it had been granted: {event}"


def _check_stale(event: Event, resource: Resource) -> Iterator[str]:
    mine = _named(event, resource)
    # A token that was guessed before it was granted is stale, too.
    if mine is None or mine.acquired_at > event.began or resource.unanswered_acquisitions(event.ended):
        return
    if not any(grant.acquired_at <= event.ended for grant in resource.after(mine.token)):
        yield f"stale though it is the newest: {event}"


def _check_expired(event: Event, resource: Resource) -> Iterator[str]:
    mine = _named(event, resource)
    if mine is None or mine.acquired_at > event.ended:
        yield f"expired though it was not granted: {event}"
        return
    if mine.end > event.ended:
        yield f"expired before its end at {mine.end}: {event}"
    if any(grant.known < event.began for grant in resource.after(event.token)):
        yield f"expired though another was granted before the call: {event}"


def _check_ended(event: Event, resource: Resource) -> Iterator[str]:
    def is_same(each: Event) -> bool:
        return (each.holder, each.request_id) == (event.holder, event.request_id)

    mine = [grant for grant in resource.grants.values() if any(map(is_same, grant.acquisitions))]
    if not mine and not any(map(is_same, resource.unanswered_acquisitions(event.ended))):
        yield f"said to have ended, and never granted: {event}"
    if any(grant.end > event.ended for grant in mine):
        yield f"said to have ended before its end: {event}"


def _named(event: Event, resource: Resource) -> Grant | None:
    """The grant that the call is about; a takeover may name anybody's, the others only their own."""
    grant = resource.grants.get(event.replaces or event.token)
    return grant if grant and (event.replaces or grant.holder == event.holder) else None


def _accept(_event: Event, _resource: Resource) -> Iterator[str]:
    return iter(())


_CHECKS: dict[Answer, Callable[[Event, Resource], Iterator[str]]] = {
    Answer.HELD: _check_held,
    Answer.NOT_FOUND: _check_not_found,
    Answer.STALE: _check_stale,
    Answer.EXPIRED: _check_expired,
    Answer.ENDED: _check_ended,
}
