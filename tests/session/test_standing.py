"""Answers that stand: which questions they answer, in the transaction that stores them, until they are revoked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import AlreadyExists, NotFound
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from services.session.standing import StandingAnswer
from services.session.store.standing import StandingStore
from tests.session.desks import Desk, Holder
from tests.session.questions import answer, check_told, closings, undelivered

KEY = SessionKey("default", "s1")
PENDING = session_pb2.INTERACTION_STATE_PENDING
ANSWERED = session_pb2.INTERACTION_STATE_ANSWERED
KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")
OPTIONS = [record_pb2.InteractionOption(option_id=kind, name=kind, kind=kind) for kind in KINDS]


@pytest.fixture
def standing(desk: Desk) -> StandingStore:
    """The standing answers of the desk's database."""
    return StandingStore(desk.database, desk.writer)


async def ask(holder: Holder, number: int, tool_kind: str, title: str, **fields: Any) -> Any:
    """The question as its holder is told of it."""
    given: dict[str, Any] = {"options": OPTIONS, "kind": record_pb2.INTERACTION_KIND_PERMISSION, **fields}
    asked = await holder.ask(number, f"q{number}", tool_kind=tool_kind, title=title, **given)
    return asked.interaction


async def revoke(standing: StandingStore, name: str, request_id: str = "") -> StandingAnswer:
    """Take one back."""
    key = RequestKey("default", "s1", "RevokeStandingAnswer", request_id, name.encode())
    return await standing.revoke(KEY, name, key)


async def test_an_answer_once_and_for_all_answers_the_next_question_about_the_same(
    desk: Desk, standing: StandingStore
) -> None:
    holder = await desk.begun()
    assert (await ask(holder, 1, "execute", "ls")).state == PENDING
    await answer(desk, "q1", "allow_always")
    [kept] = (await standing.list_oldest(KEY, 0, 10)).items
    assert (kept.tool_kind, kept.title, kept.allow, kept.interaction_id) == ("execute", "ls", True, "q1")
    again = await ask(holder, 2, "execute", "ls")
    assert (again.state, again.option_id) == (ANSWERED, "allow_once")
    assert again.settled_by == kept.standing_answer_id
    for number, (kind, title) in enumerate([("execute", "ls -l"), ("", "ls"), ("read", "ls")], start=3):
        assert (await ask(holder, number, kind, title)).state == PENDING
    assert [closed.interaction_id for closed in await closings(desk)] == ["q1", "q2"]
    await check_told(desk)
    # Told in the answer of its holder's call, and once more by the outbox, which does no harm.
    assert await undelivered(desk) == ["q1", "q2"]


@pytest.mark.parametrize(
    ("kind", "covers"), [("edit", True), ("read", True), ("delete", False), ("fetch", False)]
)
async def test_whose_title_matters_depends_on_the_kind_of_tool(desk: Desk, kind: str, covers: bool) -> None:
    holder = await desk.begun()
    await ask(holder, 1, kind, "one")
    await answer(desk, "q1", "allow_always")
    assert ((await ask(holder, 2, kind, "two")).state == ANSWERED) == covers


async def test_an_answer_for_this_once_does_not_stand(desk: Desk, standing: StandingStore) -> None:
    holder = await desk.begun()
    for number, option in enumerate(("allow_once", "reject_once"), start=1):
        await ask(holder, number, "execute", "ls")
        await answer(desk, f"q{number}", option)
    await ask(holder, 3, "execute", "ls", kind=record_pb2.INTERACTION_KIND_CHOICE)
    await answer(desk, "q3", "allow_always")
    assert (await standing.list_oldest(KEY, 0, 10)).items == []
    assert (await ask(holder, 4, "execute", "ls")).state == PENDING


async def test_the_newest_answer_about_the_same_stands(desk: Desk, standing: StandingStore) -> None:
    holder = await desk.begun()
    for number in (1, 2):
        await ask(holder, number, "execute", "ls")
    await answer(desk, "q1", "allow_always")
    await answer(desk, "q2", "reject_always")
    [kept] = (await standing.list_oldest(KEY, 0, 10)).items
    assert (kept.allow, kept.interaction_id) == (False, "q2")
    again = await ask(holder, 3, "execute", "ls")
    assert (again.state, again.option_id) == (ANSWERED, "reject_once")


async def test_where_the_agent_offers_nothing_that_says_the_same_users_are_asked(desk: Desk) -> None:
    holder = await desk.begun()
    await ask(holder, 1, "execute", "ls")
    await answer(desk, "q1", "reject_always")
    assert (await ask(holder, 2, "execute", "ls", options=OPTIONS[:2])).state == PENDING
    only = await ask(holder, 3, "execute", "ls", options=OPTIONS[3:])
    assert (only.state, only.option_id) == (ANSWERED, "reject_always")


async def test_what_is_revoked_answers_nothing_any_more(desk: Desk, standing: StandingStore) -> None:
    holder = await desk.begun()
    await ask(holder, 1, "execute", "ls")
    await answer(desk, "q1", "allow_always")
    [kept] = (await standing.list_oldest(KEY, 0, 10)).items
    revoked = await revoke(standing, kept.standing_answer_id, "r1")
    assert revoked.revoke_time is not None
    assert await revoke(standing, kept.standing_answer_id, "r1") == revoked
    assert await revoke(standing, kept.standing_answer_id) == revoked
    assert (await standing.list_oldest(KEY, 0, 10)).items == []
    assert (await ask(holder, 2, "execute", "ls")).state == PENDING
    await answer(desk, "q2", "allow_always")
    [anew] = (await standing.list_oldest(KEY, 0, 10)).items
    assert anew.standing_answer_id != kept.standing_answer_id
    with pytest.raises(NotFound, match="standing answer"):
        await revoke(standing, "standing_unknown")
    with pytest.raises(AlreadyExists):
        await revoke(standing, anew.standing_answer_id, "r1")


async def test_standing_answers_are_the_sessions_and_come_in_pages(
    desk: Desk, standing: StandingStore
) -> None:
    holder, other = await desk.begun(), await desk.begun("s2")
    for number in range(1, 6):
        await ask(holder, number, "execute", f"command {number}")
        await answer(desk, f"q{number}", "allow_always")
    assert (await ask(other, 1, "execute", "command 1")).state == PENDING
    first = await standing.list_oldest(KEY, 0, 3)
    rest = await standing.list_oldest(KEY, first.items[-1].seq, 3)
    assert ([each.title for each in first.items], first.more) == ([f"command {n}" for n in (1, 2, 3)], True)
    assert ([each.title for each in rest.items], rest.more) == (["command 4", "command 5"], False)


async def test_strange_titles_stand_like_others(desk: Desk) -> None:
    holder = await desk.begun()
    for number, title in ((1, "zero \0 within"), (3, "x" * 100_000)):
        await ask(holder, number, "execute", title)
        await answer(desk, f"q{number}", "allow_always")
        assert (await ask(holder, number + 1, "execute", title)).state == ANSWERED


async def test_pages_of_long_titles_stay_within_what_a_message_holds(
    desk: Desk, standing: StandingStore
) -> None:
    holder = await desk.begun()
    for number in range(1, 9):
        await ask(holder, number, "execute", f"{number} " + "x" * 250_000)
        await answer(desk, f"q{number}", "allow_always")
    titles, after, more = [], 0, True
    while more:
        page = await standing.list_oldest(KEY, after, 1000)
        assert sum(len(each.title) for each in page.items) < 2 * 1024 * 1024
        titles += [each.title[0] for each in page.items]
        after, more = page.items[-1].seq, page.more
    assert titles == list("12345678")


async def test_a_revocation_that_meets_a_question_is_before_it_or_after_it(
    desk: Desk, standing: StandingStore
) -> None:
    holder = await desk.begun()
    for round_ in range(20):
        number = 2 * round_ + 1
        await ask(holder, number, "execute", f"command {round_}")
        await answer(desk, f"q{number}", "allow_always")
        [kept] = (await standing.list_oldest(KEY, 0, 10)).items
        asked, _ = await asyncio.gather(
            ask(holder, number + 1, "execute", f"command {round_}"),
            revoke(standing, kept.standing_answer_id),
        )
        assert (asked.state, asked.settled_by) in ((PENDING, ""), (ANSWERED, kept.standing_answer_id))
        await check_told(desk)
