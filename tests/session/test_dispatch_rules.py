"""Which runner a turn is offered to, and when again."""

from __future__ import annotations

from services.session.outbox.claims import back_off
from services.session.outbox.offers import Loads, candidates
from services.session.runners import Runner

ONE = Runner("one/1", "h:1", "default", 2, frozenset({"demo"}))
TWO = Runner("two/1", "h:2", "default", 5, frozenset({"demo", "codex"}))
OTHER = Runner("other/1", "h:3", "other", 5, frozenset({"demo"}))
SILENT = Runner("silent/1", "", "default", 5, frozenset({"demo"}))


def test_a_turn_is_offered_more_and_more_seldom() -> None:
    assert [back_off(attempts) for attempts in range(1, 8)] == [0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


def test_only_runners_of_the_pool_that_can_be_reached_are_candidates() -> None:
    assert candidates("default", "demo", [ONE, OTHER, SILENT, TWO]).offering == (ONE, TWO)
    assert candidates("default", "codex", [ONE, OTHER, SILENT, TWO]).offering == (TWO,)


def test_the_least_loaded_with_room_is_picked() -> None:
    found = candidates("default", "demo", [ONE, TWO])
    assert found.pick(Loads(), "", ()) == TWO
    assert found.pick(Loads(offered={"h:2": 1}), "", ()) == ONE
    assert found.pick(Loads(begun={"one/1": 1}, offered={"h:2": 1}), "", ()) == TWO
    assert found.pick(Loads(begun={"one/1": 1, "two/1": 1}, offered={"h:2": 1}), "", ()) == ONE
    assert found.pick(Loads(begun={"one/1": 2, "two/1": 4}), "", ()) == TWO
    assert found.pick(Loads(begun={"one/1": 2, "two/1": 5}), "", ()) is None


def test_the_one_that_has_it_is_asked_again_unless_it_refused() -> None:
    found = candidates("default", "demo", [ONE, TWO])
    loads = Loads(begun={"one/1": 2})
    assert found.pick(loads, "h:1", ()) == ONE
    assert found.pick(loads, "h:1", {"h:1"}) == TWO
    assert found.pick(loads, "h:9", ()) == TWO
    assert found.pick(loads, "h:1", {"h:1", "h:2"}) is None


def test_it_is_told_in_words_why_there_is_none() -> None:
    assert candidates("default", "demo", []).why_none({}) == "no live runner serves the pool default"
    assert candidates("default", "x", [ONE]).why_none({}) == (
        "no live runner offers the profile x in the pool default"
    )
    found = candidates("default", "demo", [ONE, TWO])
    assert found.why_none({}) == ("every runner of the pool default that offers the profile demo is full")
    assert found.why_none({"h:1": "one is full", "h:2": "two cannot be reached"}) == (
        "one is full; two cannot be reached"
    )
