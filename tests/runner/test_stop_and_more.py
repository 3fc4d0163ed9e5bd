"""A Stop, and then something else goes wrong: one truthful ending, nothing left alive (F7, S8, S9)."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import EndReason, RuntimeAfter, StopMethod
from moorage.session.v1 import journal_pb2, session_pb2

from services.runner.runtimes import Runtime
from tests.conditions import eventually
from tests.databases import execute
from tests.fakes import JournalBetween, journal_between
from tests.gates import Gates
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.remains import Remains
from tests.runner.talks import Talks, kinds_of

COMPLETED, FAILED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_FAILED
STOPPED, LOST = turn_pb2.TURN_STATE_STOPPED, turn_pb2.TURN_STATE_LOST
QUICK: dict[str, Any] = {
    "cancel_timeout": 2.0,
    "close_timeout": 0.2,
    "terminate_timeout": 0.5,
    "lease_ttl": 3.0,
}
BEFORE_CANCEL, AFTER_CANCEL = "runner.stop.before_cancel", "runner.stop.after_cancel"

Fault = Callable[[Stack, int], Awaitable[None]]


@pytest.fixture
async def between(stack: Stack) -> AsyncIterator[JournalBetween]:
    """What the runner writes is seen here."""
    async with journal_between(stack.session.service.journal_endpoint) as between:
        yield between


async def agent_dies(_: Stack, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await runner_knows()


async def workspace_restarts(stack: Stack, _: int) -> None:
    await stack.workspace.stop()
    await runner_knows()
    await stack.workspace.start()


async def runner_knows() -> None:
    """The runner, which is in this process, has been told that its agent is dead."""
    runtimes = [each for each in gc.get_objects() if isinstance(each, Runtime)]
    await eventually(
        lambda: not any(each.is_alive for each in runtimes), what="the runner knows that its agent is dead"
    )


async def lease_is_lost(stack: Stack, pid: int) -> None:
    """The runner learns of it with its next renewal."""
    await execute(
        stack.database_url,
        "UPDATE owner.leases SET expires_at = clock_timestamp() - interval '1 second' WHERE resource LIKE 'projects/%'",
    )
    await eventually(lambda: not is_alive(pid), what="the agent was ended")


@pytest.mark.parametrize(
    ("moment", "fault", "state", "reason", "method", "after"),
    [
        # Before the cancel went out the agent's own end counts.
        (BEFORE_CANCEL, agent_dies, FAILED, "AGENT_EXITED", "UNSPECIFIED", "ENDED"),
        (BEFORE_CANCEL, workspace_restarts, FAILED, "WORKSPACE_LOST", "UNSPECIFIED", "ENDED"),
        (BEFORE_CANCEL, lease_is_lost, LOST, "LEASE_LOST", "UNSPECIFIED", "UNSPECIFIED"),
        # Afterwards every end is the Stop's.
        (AFTER_CANCEL, agent_dies, STOPPED, "USER_STOP", "AGENT_EXITED", "ENDED"),
        (AFTER_CANCEL, workspace_restarts, STOPPED, "USER_STOP", "RUNTIME_DESTROYED", "ENDED"),
        (AFTER_CANCEL, lease_is_lost, LOST, "LEASE_LOST", "UNSPECIFIED", "UNSPECIFIED"),
    ],
)
async def test_while_it_is_carried_out(
    stack: Stack,
    talks: Talks,
    between: JournalBetween,
    gates: Gates,
    moment: str,
    fault: Fault,
    state: turn_pb2.TurnState.ValueType,
    reason: str,
    method: str,
    after: str,
) -> None:
    # The ladder is not to be quicker than the renewal that tells of the loss.
    patience = {"cancel_timeout": 30.0} if fault is lease_is_lost else {}
    runner = await stack.add_runner(journal_address=between.endpoint, **QUICK | patience)
    await talks.create("s")
    # Hangs, so that nothing but the fault or the ladder ends it.
    await talks.start("s", "t", "who are you\nhang")
    pid = pid_in(await talks.says("s", "t", "Hanging"))
    gate = gates.hold(moment, "t")
    await talks.stop("s", "t")
    await gate.reached()
    await fault(stack, pid)
    gate.release()
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.end_reason) == (state, EndReason.Value(f"END_REASON_{reason}"))
    assert turn.stop_method == StopMethod.Value(f"STOP_METHOD_{method}")
    assert turn.runtime_after == RuntimeAfter.Value(f"RUNTIME_AFTER_{after}")
    assert kinds_of(await talks.records("s", "t")).count("turn_ended") == 1
    assert len(between.requests(journal_pb2.FinishTurnRequest)) == (state != LOST)
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    await Remains(stack).nothing()
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED


@pytest.mark.parametrize(
    "moment",
    [
        "runner.workspace.before_claim",
        "runner.agent.before_open",
        "runner.session.before_load",
        "runner.prompt.before_send",
    ],
)
async def test_a_lease_that_is_lost_while_the_agent_starts_leaves_nothing_to_be_parked(
    stack: Stack, talks: Talks, between: JournalBetween, gates: Gates, moment: str
) -> None:
    runner = await stack.add_runner(journal_address=between.endpoint, **QUICK)
    await talks.create("s")
    remains = Remains(stack)
    gate = gates.hold(moment, "t")
    await talks.start("s", "t", "run echo ran > ran")
    await gate.reached()
    await execute(
        stack.database_url,
        "UPDATE owner.leases SET expires_at = clock_timestamp() - interval '1 second' WHERE resource LIKE 'projects/%'",
    )
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.end_reason) == (LOST, turn_pb2.END_REASON_LEASE_LOST)
    await eventually(lambda: not list(runner.executions), what="the turn was given up")
    await remains.nothing()
    gate.release()
    assert between.requests(journal_pb2.FinishTurnRequest) == []
    assert (await talks.run("s", "next", "say anew")).state == COMPLETED
    assert not (stack.root / "ran").exists()


@pytest.mark.parametrize(
    ("moment", "reason", "prompt"),
    [
        ("runner.begin_turn.after", "PREPARE_FAILED", "say never"),
        ("runner.workspace.before_claim", "PREPARE_FAILED", "say never"),
        ("runner.agent.before_open", "AGENT_START_FAILED", "say never"),
        ("runner.session.before_load", "AGENT_START_FAILED", "say never"),
        ("runner.prompt.before_send", "AGENT_PROTOCOL_ERROR", "say never"),
        ("runner.output.recorded", "AGENT_PROTOCOL_ERROR", "say begun\nsleep 600"),
        ("runner.question.asked", "AGENT_PROTOCOL_ERROR", "ask to run true"),
        ("runner.question.before_open", "AGENT_PROTOCOL_ERROR", "ask to run true"),
        ("runner.question.opened", "AGENT_PROTOCOL_ERROR", "ask to run true"),
    ],
)
async def test_a_fault_of_the_runner_ends_the_turn_failed_and_gives_the_session_back(
    stack: Stack, talks: Talks, gates: Gates, moment: str, reason: str, prompt: str
) -> None:
    runner = await stack.add_runner(**QUICK)
    await talks.create("s", approval_policy=turn_pb2.APPROVAL_POLICY_ASK)
    gate = gates.hold(moment, "t", action="error")
    turn = await talks.run("s", "t", prompt)
    assert gate.was_reached
    assert (turn.state, turn.end_reason) == (FAILED, EndReason.Value(f"END_REASON_{reason}"))
    assert turn.error.code == "INTERNAL"
    assert turn.error.metadata["error_id"] in turn.error.message
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED
    pending = session_pb2.ListInteractionsRequest(session_id="s", pending_only=True)
    assert not (await talks.stub.ListInteractions(pending)).interactions
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    await Remains(stack).nothing()
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED


@pytest.mark.parametrize("moment", ["runner.park.before", "runner.lease.before_release"])
async def test_a_fault_after_the_end_does_not_keep_the_session_for_ever(
    stack: Stack, talks: Talks, gates: Gates, moment: str
) -> None:
    await stack.add_runner(**QUICK, park_limit=int(moment == "runner.park.before"))
    await talks.create("s")
    gate = gates.hold(moment, "t", action="error")
    assert (await talks.run("s", "t", "say done")).state == COMPLETED
    await gate.reached()
    gate.release()
    # The lease ends by itself, for nobody renews it.
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED
