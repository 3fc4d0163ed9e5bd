"""Questions of an agent to users: what is stored, what the agent is told, and what Stop makes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import Record
from moorage.common.v1.turn_pb2 import ApprovalPolicy
from moorage.runner.v1 import runner_pb2
from moorage.session.v1 import journal_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.databases import execute
from tests.fakes import Gate, JournalBetween, journal_between
from tests.runner.asked import ANSWERED, CANCELLED, EXPIRED, Deliverer, Users
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks, kinds_of, text_of

ASK = ApprovalPolicy.APPROVAL_POLICY_ASK
ACCEPTED, NOT_HELD = runner_pb2.DELIVERY_RESULT_ACCEPTED, runner_pb2.DELIVERY_RESULT_NOT_HELD
COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
AWAITING_INPUT = turn_pb2.TURN_STATE_AWAITING_INPUT
WITHDRAWN = {"outcome": "cancelled"}


@pytest.fixture
async def between(stack: Stack) -> AsyncIterator[JournalBetween]:
    """A journal before the real one, for runners to write to."""
    async with journal_between(stack.session.service.journal_endpoint) as between:
        yield between


@pytest.fixture
def users(talks: Talks) -> Users:
    """Of session s."""
    return Users(talks, "s")


def said_by_runner(records: list[Record]) -> list[Record]:
    """Those that the runner numbered, which it did without a gap."""
    numbered = [record for record in records if record.turn_seq]
    assert [record.turn_seq for record in numbered] == list(range(1, len(numbered) + 1))
    return numbered


async def waiting_reason(talks: Talks, turn_id: str, reason: str) -> None:
    """Wait until the turn tells that it waits for this."""

    async def tells() -> bool:
        return (await talks.turn("s", turn_id)).waiting_reason == reason

    await eventually(tells, what=f"the turn waits {reason}")


async def test_a_tool_runs_once_a_user_allows_it(
    stack: Stack, talks: Talks, users: Users, root: Path
) -> None:
    runner = await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "say first\nask to run touch made")
    (question,) = await users.asked()
    assert (question.title, question.turn_id) == ("touch made", "t")
    assert [option.kind for option in question.options] == ["allow_once", "allow_always", "reject_once"]
    assert (await talks.turn("s", "t")).state == AWAITING_INPUT
    await waiting_reason(talks, "t", "for an answer: touch made")
    assert [execution.stopping for execution in runner.executions] == [False]
    assert not (root / "made").exists()
    await users.answer(question, "once")
    turn = await talks.ended("s", "t")
    assert turn.state == COMPLETED, turn
    assert (root / "made").exists()
    records = await talks.records("s", "t")
    asked = next(record.body for record in records if record.body.HasField("interaction_opened"))
    call = next(record.body.tool_call for record in records if record.body.HasField("tool_call"))
    assert asked.interaction_opened.tool_call_id == call.tool_call_id
    assert kinds_of(said_by_runner(records))[:3] == ["agent_message", "tool_call", "interaction_opened"]
    assert [(closed.outcome, closed.option_id) for closed in await users.closed()] == [(ANSWERED, "once")]


async def test_a_tool_that_is_refused_does_not_run(
    stack: Stack, talks: Talks, users: Users, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run touch made\nsay what next")
    (question,) = await users.asked()
    await users.answer(question, "no")
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert await talks.said("s", "t") == "The command was refused and did not run.\nwhat next"
    assert not (root / "made").exists()


async def test_a_stop_withdraws_an_open_question(
    stack: Stack, talks: Talks, users: Users, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run touch made")
    await users.asked()
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.stop_reason) == (STOPPED, "cancelled")
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    assert not (root / "made").exists()
    assert [closed.outcome for closed in await users.closed()] == [CANCELLED]
    assert await users.questions(pending_only=True) == []
    await talks.run("s", "next", "say on we go")
    assert await talks.said("s", "next") == "on we go"
    assert len(await users.closed()) == 1


async def test_an_agent_goes_on_beside_its_questions(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "asks_two")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.start("s", "t", "go")
    first, second = await users.asked(2)
    assert (first.title, second.title) == ("first", "second")
    await talks.says("s", "t", "beside")
    await waiting_reason(talks, "t", "for answers to 2 questions")
    await users.answer(second, "yes")
    await waiting_reason(talks, "t", "for an answer: first")
    assert (await talks.turn("s", "t")).state == AWAITING_INPUT
    await users.answer(first, "yes")
    assert (await talks.ended("s", "t")).state == COMPLETED
    records = await talks.records("s", "t")
    yes = {"outcome": "selected", "optionId": "yes"}
    assert json.loads(text_of(records).partition("beside ")[2]) == {"ask first": yes, "ask second": yes}
    # A tool call that was not announced is told before the question about it.
    message, update, question = ["agent_message"], ["tool_update"], ["interaction_opened"]
    expected = message + update + question + message + update + question + message
    assert kinds_of(said_by_runner(records))[: len(expected)] == expected


class TestAQuestionThatExpires:
    """Nobody answers in time."""

    @pytest.fixture
    def changes(self) -> dict[str, dict[str, Any]]:
        return {"session": {"interaction_timeout": 0.3}}

    async def test_is_answered_with_a_rejection(
        self, stack: Stack, talks: Talks, users: Users, root: Path
    ) -> None:
        await stack.add_runner()
        await talks.create("s", approval_policy=ASK)
        await talks.start("s", "t", "ask to run touch made")
        assert (await talks.ended("s", "t")).state == COMPLETED
        assert await talks.said("s", "t") == "The command was refused and did not run.\n"
        assert [closed.outcome for closed in await users.closed()] == [EXPIRED]
        assert not (root / "made").exists()


async def test_what_is_delivered_twice_is_done_once(
    stack: Stack, talks: Talks, users: Users, root: Path
) -> None:
    runner = await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run echo ran >> log\nsleep 600")
    (question,) = await users.asked()
    async with open_channel(runner.endpoint) as channel:
        deliver = Deliverer(channel)
        for other in ({"turn_id": "other"}, {"session_id": "other"}, {"project": "other"}):
            assert await deliver(question, ANSWERED, "once", **other) == NOT_HELD
        assert await deliver(question, ANSWERED, "once", interaction_id="other") == ACCEPTED
        assert not (root / "log").exists()
        assert await deliver(question, ANSWERED, "once") == ACCEPTED
        assert await deliver(question, EXPIRED) == ACCEPTED
        await talks.says("s", "t", "Sleeping")
        assert await deliver(question, ANSWERED, "no") == ACCEPTED
        assert (root / "log").read_text() == "ran\n"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await deliver(question, ANSWERED)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        await talks.stop("s", "t")
        await talks.ended("s", "t")
        assert await deliver(question, ANSWERED, "once") == NOT_HELD


async def test_a_question_is_stored_once_however_often_it_is_sent(
    stack: Stack, talks: Talks, users: Users, between: JournalBetween
) -> None:
    between.losing["OpenInteraction"] = 2
    await stack.add_runner(journal_address=between.endpoint)
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run true\nsay done")
    (question,) = await users.asked()
    await users.answer(question, "once")
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert between.losing["OpenInteraction"] == 0
    assert len(between.requests(journal_pb2.OpenInteractionRequest)) == 3
    records = said_by_runner(await talks.records("s", "t"))
    assert kinds_of(records).count("interaction_opened") == 1
    assert text_of(records).endswith("done")


async def test_a_question_and_what_follows_wait_for_a_journal_that_is_away(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path, between: JournalBetween
) -> None:
    gate = between.before["OpenInteraction"] = Gate()
    profile = write_rogue(tmp_path / "profiles", "asks_two")
    await stack.add_runner(profiles_directory=tmp_path / "profiles", journal_address=between.endpoint)
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.start("s", "t", "go")
    await gate.reached.wait()
    await stack.session.stop()
    gate.open.set()
    await eventually(lambda: len(between.requests(journal_pb2.OpenInteractionRequest)) > 1)
    await stack.session.start()
    for question in await users.asked(2):
        await users.answer(question, "yes")
    assert (await talks.ended("s", "t")).state == COMPLETED
    records = said_by_runner(await talks.records("s", "t"))
    assert text_of(records).startswith("before between beside {")


async def test_a_stop_before_a_question_is_stored_leaves_no_trace_of_it(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path, between: JournalBetween
) -> None:
    gate = between.before["OpenInteraction"] = Gate()
    profile = write_rogue(tmp_path / "profiles", "asks_two")
    await stack.add_runner(profiles_directory=tmp_path / "profiles", journal_address=between.endpoint)
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.start("s", "t", "go")
    await gate.reached.wait()
    await talks.stop("s", "t")
    gate.open.set()
    turn = await talks.ended("s", "t")
    assert turn.state == STOPPED, turn
    records = said_by_runner(await talks.records("s", "t"))
    assert "interaction_opened" not in kinds_of(records)
    assert await users.questions() == []
    answers = json.loads(text_of(records).partition("beside ")[2])
    assert answers == {"ask first": WITHDRAWN, "ask second": WITHDRAWN}


async def test_an_answer_that_comes_before_the_question_is_acknowledged_counts(
    stack: Stack, talks: Talks, users: Users, between: JournalBetween
) -> None:
    between.losing["OpenInteraction"] = 1_000_000
    await stack.add_runner(journal_address=between.endpoint)
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run true\nsay done")
    (question,) = await users.asked()
    await users.answer(question, "once")
    await eventually(lambda: len(between.requests(journal_pb2.OpenInteractionRequest)) > 3)
    between.losing["OpenInteraction"] = 0
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert text_of(said_by_runner(await talks.records("s", "t"))).endswith("done")


async def test_a_question_that_cannot_be_stored_is_withdrawn_and_says_so(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "asks_too_much")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, approval_policy=ASK)
    assert (await talks.run("s", "t", "go")).state == COMPLETED
    records = said_by_runner(await talks.records("s", "t"))
    assert kinds_of(records) == ["agent_message", "tool_update", "error", "agent_message"]
    assert records[2].body.error.error.code == "QUESTION_REFUSED"
    assert json.loads(text_of(records).removeprefix("before ")) == WITHDRAWN
    assert await users.questions() == []


async def test_a_holder_that_lost_its_session_asks_nobody(
    stack: Stack, talks: Talks, users: Users, between: JournalBetween
) -> None:
    gate = between.before["OpenInteraction"] = Gate()
    runner = await stack.add_runner(journal_address=between.endpoint)
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "ask to run true")
    await gate.reached.wait()
    await execute(stack.database_url, "UPDATE session.sessions SET token = token + 1")
    gate.open.set()
    await eventually(lambda: not list(runner.executions), within=20, what="the turn was given up")
    assert between.requests(journal_pb2.FinishTurnRequest) == []
    assert await users.questions() == []


async def test_questions_that_nobody_can_answer_are_refused(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "asks_badly")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.run("s", "t", "go")
    assert json.loads(await talks.said("s", "t")) == [-32602, -32602, -32602]
    assert await users.questions() == []
