"""The checker finds each thing that must not be, in a history that is good but for that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.races.lease_checker import violations
from tests.races.lease_history import Answer, Event

TTL = timedelta(seconds=10)


def at(second: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def event(call: str, holder: str, second: float, answer: Answer, **told: object) -> Event:
    """A call that took one second."""
    return Event(call, "r", holder, at(second), at(second + 1), answer, **told)  # type: ignore[arg-type]


def granted(holder: str, second: float, token: int, request_id: str = "", end: float | None = None) -> Event:
    """A grant in the middle of its call."""
    return event(
        "acquire",
        holder,
        second,
        Answer.GRANTED,
        token=token,
        request_id=request_id,
        ttl=TTL,
        acquired_at=at(second + 0.5),
        expires_at=at(second + 10.5 if end is None else end),
    )


def renewed(holder: str, second: float, token: int) -> Event:
    return event("renew", holder, second, Answer.RENEWED, token=token, expires_at=at(second + 10.5))


def released(holder: str, second: float, token: int) -> Event:
    return event("release", holder, second, Answer.RELEASED, token=token, expires_at=at(second + 0.5))


def held(holder: str, second: float, named: str, end: float) -> Event:
    return event("acquire", holder, second, Answer.HELD, named=named, expires_at=at(end))


def lost(call: str, holder: str, second: float, answer: Answer, token: int) -> Event:
    return event(call, holder, second, answer, token=token)


def taken(
    holder: str, second: float, token: int, until: float, request_id: str = "", replaces: int = 0
) -> Event:
    """A takeover of the token before, or of another; its taker hears until when that one may act."""
    return replace(
        granted(holder, second, token, request_id),
        call="takeover",
        replaces=replaces or token - 1,
        replaced_until=at(until),
    )


def refused(holder: str, second: float, replaces: int) -> Event:
    return event("takeover", holder, second, Answer.STALE, replaces=replaces)


GOOD = [
    lost("release", "a", -2, Answer.STALE, 1),
    granted("a", 0, 1, "one"),
    held("b", 2, "a", 10.5),
    replace(granted("a", 3, 1, "one", end=10.5), acquired_at=at(0.5)),
    renewed("a", 5, 1),
    lost("renew", "b", 6, Answer.STALE, 1),
    released("a", 8, 1),
    released("a", 8.1, 1),
    lost("renew", "a", 10, Answer.EXPIRED, 1),
    event("acquire", "a", 12, Answer.ENDED, request_id="one"),
    granted("b", 20, 2),
    lost("renew", "a", 22, Answer.STALE, 1),
    lost("release", "a", 23, Answer.STALE, 1),
    lost("renew", "b", 31, Answer.EXPIRED, 2),
    refused("c", 32, 1),
    refused("c", 32, 3),
    taken("c", 33, 3, 30.5, "two"),
    replace(taken("c", 34, 3, 30.5, "two"), acquired_at=at(33.5), expires_at=at(43.5)),
    renewed("c", 36, 3),
    taken("d", 38, 4, 46.5),
    lost("renew", "c", 39, Answer.STALE, 3),
    lost("release", "c", 39, Answer.STALE, 3),
    event("takeover", "c", 40, Answer.ENDED, request_id="two", replaces=2),
    held("a", 41, "d", 48.5),
]
GOOD[7] = replace(GOOD[7], expires_at=GOOD[6].expires_at)

BAD = {
    "given twice": [granted("a", 0, 1), granted("b", 20, 1)],
    "given twice to one holder": [granted("a", 0, 1, "one"), granted("a", 20, 1, "two")],
    "not positive": [granted("a", 0, 0)],
    "two leases at once": [granted("a", 0, 1), granted("b", 5, 2)],
    "two leases at once, after a renewal": [granted("a", 0, 1), renewed("a", 5, 1), granted("b", 12, 2)],
    "lower token": [granted("a", 0, 2), granted("b", 20, 1)],
    "revived": [granted("a", 0, 1), renewed("a", 11, 1)],
    "not extended by its ttl": [granted("a", 0, 1), replace(renewed("a", 5, 1), expires_at=at(12))],
    "renewed after its release": [granted("a", 0, 1), released("a", 2, 1), renewed("a", 5, 1)],
    "RENEWED though token 2": [
        granted("a", 0, 1),
        released("a", 2, 1),
        granted("b", 4, 2),
        renewed("a", 6, 1),
    ],
    "not granted it": [granted("a", 0, 1), renewed("b", 5, 1)],
    "not granted it, release": [granted("a", 0, 1), released("a", 5, 2)],
    "releases of token 1 disagree": [granted("a", 0, 1), released("a", 2, 1), released("a", 4, 1)],
    "granted after its answer": [replace(granted("a", 0, 1), acquired_at=at(2))],
    "granted before it was asked for": [replace(granted("a", 5, 1), acquired_at=at(2))],
    "given as live": [
        granted("a", 0, 1, "one"),
        replace(granted("a", 20, 1, "one", end=10.5), acquired_at=at(0.5)),
    ],
    "refused because of a lease that had ended": [granted("a", 0, 1), held("b", 20, "a", 10.5)],
    "a lease that nobody has": [granted("a", 0, 1), held("b", 2, "c", 10.5)],
    "not found": [granted("a", 0, 1), lost("renew", "a", 2, Answer.NOT_FOUND, 1)],
    "stale though it is the newest": [granted("a", 0, 1), lost("renew", "a", 2, Answer.STALE, 1)],
    "expired though it was not granted": [lost("renew", "a", 2, Answer.EXPIRED, 1)],
    "expired though it was not granted, then": [lost("renew", "a", 2, Answer.EXPIRED, 1), granted("a", 5, 1)],
    "not granted it, then": [renewed("a", 2, 1), granted("a", 5, 1)],
    "expired before its end": [granted("a", 0, 1), lost("renew", "a", 2, Answer.EXPIRED, 1)],
    "expired though another was granted": [
        granted("a", 0, 1),
        granted("b", 20, 2),
        lost("renew", "a", 22, Answer.EXPIRED, 1),
    ],
    "never granted": [event("acquire", "a", 2, Answer.ENDED, request_id="one")],
    "took over token 1, which was not the newest": [
        granted("a", 0, 1),
        taken("b", 2, 2, 10.5),
        taken("c", 4, 3, 10.5, replaces=1),
    ],
    "told an end that is too early": [granted("a", 0, 1), taken("b", 2, 2, 10)],
    "told an end that is too early, after a renewal": [
        granted("a", 0, 1),
        renewed("a", 2, 1),
        taken("b", 4, 2, 10.5),
    ],
    "renewed after it was taken over": [
        granted("a", 0, 1),
        taken("b", 2, 2, 13),
        replace(renewed("a", 2.2, 1), ended=at(4)),
    ],
    "RELEASED though token 2": [granted("a", 0, 1), taken("b", 2, 2, 10.5), released("a", 4, 1)],
    "stale though it is the newest, to a taker": [granted("a", 0, 1), refused("b", 2, 1)],
    "two leases at once, after a takeover": [
        granted("a", 0, 1),
        taken("b", 2, 2, 10.5),
        granted("c", 4, 3),
    ],
    "ended before its end": [
        granted("a", 0, 1, "one"),
        event("acquire", "a", 2, Answer.ENDED, request_id="one"),
    ],
}


def test_a_good_history_has_no_violation() -> None:
    assert violations(GOOD) == []


def test_histories_of_different_resources_do_not_meet() -> None:
    assert violations([*GOOD, *(replace(each, resource="s") for each in GOOD)]) == []


@pytest.mark.parametrize("what", BAD)
def test_it_finds(what: str) -> None:
    found = violations(BAD[what])
    assert any(what.partition(",")[0].removesuffix(" to one holder") in problem for problem in found), found


def test_unanswered_calls_explain_what_nothing_else_does() -> None:
    """A call that was cut may have got the lease, or ended it."""
    cut_acquire = event("acquire", "c", 1, Answer.UNKNOWN, request_id="one")
    cut_release = event("release", "a", 2, Answer.UNKNOWN, token=1)
    assert violations([cut_acquire, held("b", 3, "c", 11)]) == []
    assert violations([cut_acquire, event("acquire", "c", 15, Answer.ENDED, request_id="one")]) == []
    assert violations([granted("a", 0, 1), cut_release, granted("b", 4, 2)]) == []
    assert violations([granted("a", 0, 1), cut_release, lost("renew", "a", 4, Answer.EXPIRED, 1)]) == []
    assert violations([granted("a", 0, 1), cut_acquire, lost("renew", "a", 20, Answer.STALE, 1)]) == []
    cut_takeover = event("takeover", "c", 1, Answer.UNKNOWN, replaces=1)
    assert violations([granted("a", 0, 1), cut_takeover, lost("renew", "a", 3, Answer.STALE, 1)]) == []
    assert violations([granted("a", 0, 1), cut_release, taken("b", 4, 2, 2.5)]) == []
    late_release = event("release", "a", 30, Answer.UNKNOWN, token=1)
    assert violations([granted("a", 0, 1), taken("b", 4, 2, 10.5), late_release]) == []
    cut_renewal = event("renew", "a", 9, Answer.UNKNOWN, token=1)
    assert violations([granted("a", 0, 1), cut_renewal, renewed("a", 15, 1)]) == []
    assert violations([granted("a", 0, 1), cut_renewal, renewed("a", 21, 1)]) != []
