"""ListInteractions and AnswerInteraction over gRPC, on whole replicas with real neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import FailedPrecondition, InvalidArgument, MoorageError, NotFound
from services.session.server import SessionReplica
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.holders import Holder
from tests.session.leasing import Taker
from tests.session.places import Places, running_session

ANSWERED = session_pb2.INTERACTION_STATE_ANSWERED
EXPIRED = session_pb2.INTERACTION_STATE_EXPIRED


@dataclass
class Stage:
    """A client, and a live runner that holds the session s1 and has begun its turn t1."""

    client: Client
    runner: FakeRunner
    holder: Holder


@contextlib.asynccontextmanager
async def staged(places: Places, replica: SessionReplica, client: Client) -> AsyncIterator[Stage]:
    async with (
        open_channel(places.owner_address) as owner,
        open_channel(replica.journal_endpoint) as journal,
        fake_runner("one") as runner,
    ):
        await client.create(session_id="s1")
        lease = await Taker(owner).session("s1", runner.holder, endpoint=runner.endpoint)
        holder = Holder(journal, "s1", lease.grant)
        await client.start("s1", turn_id="t1")
        await holder.begin("t1")
        yield Stage(client, runner, holder)


@pytest.fixture
async def stage(places: Places, replica: SessionReplica, client: Client) -> AsyncIterator[Stage]:
    async with staged(places, replica, client) as stage:
        yield stage


async def test_a_question_is_seen_answered_and_delivered(stage: Stage) -> None:
    client = stage.client
    await stage.holder.ask("t1", 1)
    (asked,) = (await client.list_interactions("s1", pending_only=True)).interactions
    assert (asked.interaction_id, asked.turn_id, asked.state) == (
        "q1",
        "t1",
        session_pb2.INTERACTION_STATE_PENDING,
    )
    assert [option.option_id for option in asked.options] == ["yes", "no"]
    assert asked.expire_time.ToNanoseconds() > asked.create_time.ToNanoseconds()
    assert not asked.HasField("settle_time")
    for turn in (await client.get_turn("s1", "t1"), (await client.get("s1")).turn):
        assert turn.state == turn_pb2.TURN_STATE_AWAITING_INPUT
        assert list(turn.pending_interaction_ids) == ["q1"]
    with pytest.raises(FailedPrecondition) as busy:
        await client.start("s1")
    assert busy.value.metadata["interaction_id"] == "q1"

    answered = await client.answer("s1", "q1", "yes")
    assert (answered.state, answered.option_id, answered.settled_by) == (ANSWERED, "yes", "client")
    assert answered.HasField("settle_time")
    await eventually(lambda: bool(stage.runner.answers))
    assert (stage.runner.answers[0].interaction_id, stage.runner.answers[0].option_id) == ("q1", "yes")
    turn = await client.get_turn("s1", "t1")
    assert (turn.state, list(turn.pending_interaction_ids)) == (turn_pb2.TURN_STATE_RUNNING, [])
    assert list((await client.list_interactions("s1")).interactions) == [answered]
    assert not (await client.list_interactions("s1", pending_only=True)).interactions
    with pytest.raises(FailedPrecondition) as late:
        await client.answer("s1", "q1", "no")
    assert late.value.reason_name == "INTERACTION_NOT_PENDING"
    assert (late.value.metadata["outcome"], late.value.metadata["option_id"]) == ("ANSWERED", "yes")


async def test_who_runs_a_turn_sees_its_questions_come_and_go(stage: Stage) -> None:
    client = stage.client
    await stage.holder.complete("t1")
    events = client.run("s1", turn_id="t2")
    assert (await anext(events)).admitted.turn_id == "t2"
    await stage.holder.begin("t2")
    await stage.holder.ask("t2", 1, "q2")
    await client.answer("s1", "q2", "no")
    await stage.holder.complete("t2", 1)
    kinds = [event.record.body.WhichOneof("body") async for event in events if event.HasField("record")]
    assert kinds == [
        "user_message",
        "turn_started",
        "interaction_opened",
        "interaction_closed",
        "turn_ended",
    ]


async def test_what_nobody_answers_in_time_expires_and_is_delivered(places: Places) -> None:
    async with (
        running_session(places, interaction_timeout=0.2) as replica,
        running_session(places) as other,
        open_channel(other.endpoint) as channel,
        staged(places, replica, Client(channel)) as stage,
    ):
        await stage.holder.ask("t1", 1)
        await eventually(lambda: bool(stage.runner.answers), within=5.0)
        assert stage.runner.answers[0].outcome == record_pb2.INTERACTION_OUTCOME_EXPIRED
        (late,) = (await stage.client.list_interactions("s1")).interactions
        assert (late.state, late.settled_by) == (EXPIRED, "expiry")
        assert (await stage.client.get_turn("s1", "t1")).state == turn_pb2.TURN_STATE_RUNNING


async def test_pages_follow_each_other_oldest_first(stage: Stage) -> None:
    names = [f"q{number}" for number in range(5, 0, -1)]
    for turn_seq, name in enumerate(names, 1):
        await stage.holder.ask("t1", turn_seq, name)
    await stage.client.answer("s1", "q4", "no")
    for pending_only, expected in [(False, names), (True, ["q5", "q3", "q2", "q1"])]:
        found, token, pages = [], "", 0
        while token or not pages:
            page = await stage.client.list_interactions(
                "s1", pending_only=pending_only, page_size=2, page_token=token
            )
            found += [each.interaction_id for each in page.interactions]
            token, pages = page.next_page_token, pages + 1
        assert found == expected
        assert pages == (len(expected) + 1) // 2
    token = (await stage.client.list_interactions("s1", page_size=2)).next_page_token
    with pytest.raises(InvalidArgument) as other_listing:
        await stage.client.list_interactions("s1", pending_only=True, page_token=token)
    assert [violation.field for violation in other_listing.value.violations] == ["page_token"]


async def test_other_projects_and_unknown_names_are_not_found(
    stage: Stage, channel: grpc.aio.Channel
) -> None:
    await stage.holder.ask("t1", 1)
    stranger = Client(channel, project="stranger")
    for call, reason in [
        (stranger.list_interactions("s1"), "SESSION_NOT_FOUND"),
        (stranger.answer("s1", "q1", "yes"), "SESSION_NOT_FOUND"),
        (stage.client.answer("s1", "q2", "yes"), "INTERACTION_NOT_FOUND"),
        (stage.client.list_interactions("s2"), "SESSION_NOT_FOUND"),
    ]:
        with pytest.raises(NotFound) as refusal:
            await call
        assert refusal.value.reason_name == reason
    assert len((await stage.client.list_interactions("s1", pending_only=True)).interactions) == 1


@pytest.mark.parametrize(
    ("field", "names", "fields"),
    [
        ("session_id", ("a b", "q1", "yes"), {}),
        ("interaction_id", ("s1", "", "yes"), {}),
        ("option_id", ("s1", "q1", ""), {}),
        ("option_id", ("s1", "q1", "a\0"), {}),
        ("request_id", ("s1", "q1", "yes"), {"request_id": "r" * 256}),
    ],
)
async def test_bad_answers_name_the_field(
    client: Client, field: str, names: tuple[str, str, str], fields: dict[str, Any]
) -> None:
    with pytest.raises(MoorageError) as refusal:
        await client.answer(*names, **fields)
    assert [violation.field for violation in refusal.value.violations] == [field]
