"""A Stop before the prompt: the turn ends at once, and nothing of it is left anywhere (S8, S11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.common.v1.turn_pb2 import StopMethod
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.gates import Gates
from tests.runner.parts import Stack
from tests.runner.remains import Remains
from tests.runner.talks import Talks, kinds_of

COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
ENDED, WARM = turn_pb2.RUNTIME_AFTER_ENDED, turn_pb2.RUNTIME_AFTER_WARM
WITHDRAWN, NOT_BEGUN = StopMethod.STOP_METHOD_PROMPT_WITHDRAWN, StopMethod.STOP_METHOD_NOT_BEGUN
# Where a Stop ends what is under way, without anybody letting it go on.
BEGUN = (
    "runner.workspace.before_claim",
    "runner.agent.before_open",
    "runner.session.before_load",
    "runner.prompt.before_send",
)


async def check_stopped(
    talks: Talks, session_id: str, turn_id: str, method: StopMethod.ValueType
) -> session_pb2.Turn:
    """The turn ended STOPPED with one ending, and its command says so."""
    turn = await talks.ended(session_id, turn_id)
    assert (turn.state, turn.end_reason) == (STOPPED, turn_pb2.END_REASON_USER_STOP)
    assert turn.stop_method == method
    assert kinds_of(await talks.records(session_id, turn_id)).count("turn_ended") == 1
    return turn


@pytest.mark.parametrize("moment", BEGUN)
async def test_before_the_prompt(stack: Stack, talks: Talks, gates: Gates, moment: str) -> None:
    runner = await stack.add_runner(terminate_timeout=0.5)
    await talks.create("s", provision=provision_pb2.ProvisionSpec(), wait_ready=True)
    remains = Remains(stack)
    gate = gates.hold(moment, "t")
    await talks.start("s", "t", "run echo ran > ran")
    await gate.reached()
    await talks.stop("s", "t")
    # It is still closed: a Stop does not wait for what it interrupts.
    turn = await check_stopped(talks, "s", "t", WITHDRAWN)
    assert turn.runtime_after == ENDED
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    await remains.nothing()
    gate.release()
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED
    assert (await talks.said("s", "next")).endswith("goes on")
    assert not list(stack.state.rglob("ran"))


async def test_before_it_was_begun(stack: Stack, talks: Talks, gates: Gates) -> None:
    runner = await stack.add_runner()
    await talks.create("s", provision=provision_pb2.ProvisionSpec(), wait_ready=True)
    remains = Remains(stack)
    for turn_id, moment in (("a", "runner.dispatch.registered"), ("b", "runner.begin_turn.before")):
        gate = gates.hold(moment, turn_id)
        await talks.start("s", turn_id, "run echo ran > ran")
        await gate.reached()
        await talks.stop("s", turn_id)
        await check_stopped(talks, "s", turn_id, NOT_BEGUN)
        gate.release()
        await eventually(lambda: not list(runner.executions), what="nothing is executed")
        await remains.nothing()
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED


async def test_while_the_workspace_is_being_made(stack: Stack, talks: Talks, gates: Gates) -> None:
    runner = await stack.add_runner()
    remains = Remains(stack)
    making = gates.hold("workspace.provision.before_make")
    await talks.create("s", provision=provision_pb2.ProvisionSpec())
    await talks.start("s", "t", "run echo ran > ran")

    async def waits_for_it() -> bool:
        return "PROVISIONING" in (await talks.turn("s", "t")).waiting_reason

    await eventually(waits_for_it, what="the turn waits for its workspace")
    await talks.stop("s", "t")
    await check_stopped(talks, "s", "t", WITHDRAWN)
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    await remains.nothing()
    making.release()
    assert (await talks.run("s", "next", "say in its own directory")).state == COMPLETED
    # The session's own directory, what leads to it and tells of it, and nothing else was made.
    own = Path((await talks.session("s")).binding.local.directory)
    beside = {path for path in map(Path, remains.new_paths()) if own not in (path, *path.parents)}
    assert beside <= {*own.parents, own.with_suffix(".json")}


async def test_before_the_next_prompt_of_a_warm_session(stack: Stack, talks: Talks, gates: Gates) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    assert (await talks.run("s", "one", "remember the lighthouse")).runtime_after == WARM
    remains = Remains(stack)
    assert len(remains.execs()) == 1
    gate = gates.hold("runner.prompt.before_send", "two")
    await talks.start("s", "two", "run echo ran > ran")
    await gate.reached()
    await talks.stop("s", "two")
    assert (await check_stopped(talks, "s", "two", WITHDRAWN)).runtime_after == ENDED
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    await remains.nothing()
    gate.release()
    await talks.run("s", "three", "recall")
    assert "the lighthouse" in await talks.said("s", "three")
