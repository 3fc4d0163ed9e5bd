"""Questions that want values, pages to be opened, and answers that stand (T6)."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.common.v1.turn_pb2 import ApprovalPolicy

from services.common.errors import InvalidArgument
from services.common.status import from_rpc_error
from tests.runner.asked import ANSWERED, Users
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks

ASK, DENY = ApprovalPolicy.APPROVAL_POLICY_ASK, ApprovalPolicy.APPROVAL_POLICY_DENY
ALLOW = ApprovalPolicy.APPROVAL_POLICY_ALLOW
COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED


@pytest.fixture
def users(talks: Talks) -> Users:
    """Of session s."""
    return Users(talks, "s")


@pytest.mark.parametrize("policy", [ASK, ALLOW])
async def test_what_a_user_fills_in_reaches_the_agent(
    stack: Stack, talks: Talks, users: Users, policy: ApprovalPolicy.ValueType
) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=policy)
    await talks.start("s", "t", "fill in name, port")
    [question] = await users.asked()
    assert question.kind == record_pb2.INTERACTION_KIND_FORM
    assert question.title == "Please fill in name, port"
    assert json.loads(question.schema)["required"] == ["name"]
    for values in ('{"name": 5}', '{"port": "x"}', '{"name": "x", "other": "y"}', "[]"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await users.answer(question, "accept", values)
        assert isinstance(from_rpc_error(refused.value), InvalidArgument)
    values = json.dumps({"name": "Ann \N{SNOWMAN}", "port": "Brest"})
    answered = await users.answer(question, "accept", values)
    assert json.loads(answered.values) == {"name": "Ann \N{SNOWMAN}", "port": "Brest"}
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert await talks.said("s", "t") == "name: Ann \N{SNOWMAN}\nport: Brest\n"
    [closed] = await users.closed()
    assert (closed.outcome, closed.option_id, closed.settled_by) == (ANSWERED, "accept", "client")
    assert json.loads(closed.values) == json.loads(values)


async def test_a_form_can_be_declined_and_a_policy_that_denies_does(
    stack: Stack, talks: Talks, users: Users
) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "fill in name")
    [question] = await users.asked()
    await users.answer(question, "decline")
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert await talks.said("s", "t") == "Nothing was filled in.\n"
    await talks.create("denied", approval_policy=DENY)
    assert (await talks.run("denied", "t", "fill in name")).state == COMPLETED
    assert await talks.said("denied", "t") == "Nothing was filled in.\n"


async def test_a_stop_withdraws_a_form(stack: Stack, talks: Talks, users: Users) -> None:
    await stack.add_runner()
    await talks.create("s", approval_policy=ASK)
    await talks.start("s", "t", "fill in name")
    await users.asked()
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.stop_reason) == (STOPPED, "cancelled")
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM


async def test_forms_that_nobody_can_fill_in_are_refused_and_a_page_is_a_question(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "fills_in_badly")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.start("s", "t", "go")
    [question] = await users.asked()
    assert question.kind == record_pb2.INTERACTION_KIND_CHOICE
    assert question.title == "Log in at http://127.0.0.1/login"
    await users.answer(question, "accept")
    assert (await talks.ended("s", "t")).state == COMPLETED
    assert json.loads(await talks.said("s", "t")) == [*[-32602] * 4, {"action": "accept"}]


async def test_an_answer_once_and_for_all_stands_until_it_is_revoked(
    stack: Stack, talks: Talks, users: Users, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "asks_the_same_twice")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, approval_policy=ASK)
    await talks.start("s", "one", "go")
    [edit] = await users.asked()
    assert (edit.tool_kind, edit.title) == ("edit", "a.txt")
    await users.answer(edit, "always")
    [run] = await users.asked()
    assert (run.tool_kind, run.title) == ("execute", "ls")
    await users.answer(run, "always")
    assert (await talks.ended("s", "one")).state == COMPLETED
    # The agent has been told no more than what holds for this once.
    assert await talks.said("s", "one") == "once once once once "
    edits, runs = await users.standing()
    assert (edits.tool_kind, edits.title, edits.allow) == ("edit", "", True)
    assert (runs.tool_kind, runs.title, runs.interaction_id) == ("execute", "ls", run.interaction_id)
    settled_by = [closed.settled_by for closed in await users.closed()]
    assert settled_by == ["client", edits.standing_answer_id, "client", runs.standing_answer_id]
    turn = await talks.run("s", "two", "go")
    assert turn.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    assert await talks.said("s", "two") == "once once once once "
    revoked = await users.revoke(runs)
    assert revoked.HasField("revoke_time")
    assert (await users.revoke(runs)) == revoked
    assert await users.standing() == [edits]
    await talks.start("s", "three", "go")
    for _ in range(2):
        [again] = await users.asked()
        assert again.title == "ls"
        await users.answer(again, "no")
    assert (await talks.ended("s", "three")).state == COMPLETED
    assert await talks.said("s", "three") == "once once no no "
