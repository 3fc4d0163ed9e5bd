"""Takeovers between processes: hung runners, dead takers, late calls, workspaces that cannot be asked (S6, F8, T3)."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.talks import Talks
from tests.system.fleet import MARGIN, STOP_DEADLINE, Fleet, dead, pid_of, settled
from tests.system.repeating import repeated

# Processes take their time to start on a busy machine.
pytestmark = [pytest.mark.timeout(180), *repeated]

WORK = "pid\ncount to 1000000 every 0.01"
LONG = ("--lease-ttl", "60")
LOST = ("t1", "LOST", "STOP_DEADLINE")


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A workspace and one replica of the session service."""
    async with Fleet(database_url, tmp_path) as fleet:
        await fleet.start_workspace()
        await fleet.start_session()
        yield fleet


async def hung(fleet: Fleet, talks: Talks, *flags: str) -> int:
    """A session whose runner stands still in the middle of a turn, its lease live; the agent's pid."""
    runner = await fleet.start_runner("one", *(flags or LONG))
    await talks.create("s")
    await talks.start("s", "t1", WORK)
    pid = await pid_of(talks)
    runner.send(signal.SIGSTOP)
    return pid


async def free(fleet: Fleet) -> None:
    """Return when nobody holds the session."""

    async def is_free() -> bool:
        return not (await fleet.lease()).live

    await eventually(is_free, within=20, what="the lease is free")


async def test_a_hung_runners_turn_is_lost_at_the_deadline_of_its_stop_and_the_next_one_runs_elsewhere(
    fleet: Fleet,
) -> None:
    async with fleet.talks() as talks:
        pid = await hung(fleet, talks)
        token = (await fleet.lease()).token
        command = await talks.stop("s", "t1")
        told = await settled(talks, "s", command.command_id, STOP_DEADLINE + 5.0)
        assert told.outcome == session_pb2.COMMAND_OUTCOME_LOST
        # Its fence came before its end.
        assert not is_alive(pid)
        assert await fleet.endings() == [LOST]
        await free(fleet)
        await fleet.start_runner("two")
        await talks.start("s", "t2", "pid\nsay here")
        await talks.says("s", "t2", "here")
        assert (await talks.ended("s", "t2")).metadata.token > token + 1
        fleet.processes["runner-one"].send(signal.SIGCONT)
        runner = fleet.processes["runner-one"]
        await eventually(lambda: bool(runner.events("the turn was given up")), within=30)
        # It still runs others' turns.
        await talks.create("other")
        assert (await talks.run("other", "t1", "say there")).state == turn_pb2.TURN_STATE_COMPLETED
        assert await fleet.endings() == [LOST, ("t2", "COMPLETED", "AGENT_ENDED")]


async def test_no_closing_holds_up_the_takeover_of_a_hung_runner(fleet: Fleet) -> None:
    async with fleet.talks() as talks:
        pid = await hung(fleet, talks)
        request = session_pb2.CloseSessionRequest(session_id="s", wait=True)
        answer = await talks.stub.CloseSession(request, timeout=60)
        assert answer.session.state == session_pb2.SESSION_STATE_CLOSED
        assert not is_alive(pid)
        assert await fleet.endings() == [LOST]


async def test_a_parked_runtime_of_a_hung_runner_does_not_keep_a_session_from_closing(fleet: Fleet) -> None:
    async with fleet.talks() as talks:
        runner = await fleet.start_runner("one", *LONG)
        await talks.create("s")
        await talks.run("s", "t1", "pid")
        pid = await pid_of(talks)
        runner.send(signal.SIGSTOP)
        request = session_pb2.CloseSessionRequest(session_id="s", wait=True)
        answer = await talks.stub.CloseSession(request, timeout=60)
        assert answer.session.state == session_pb2.SESSION_STATE_CLOSED
        assert not is_alive(pid)
        assert await fleet.endings() == [("t1", "COMPLETED", "AGENT_ENDED")]


async def test_what_a_taker_left_that_died_before_its_fence_is_dead_when_the_session_is_closed(
    fleet: Fleet,
) -> None:
    """The lease of the dead one has ended, and the grant of the holder before is good for long."""
    async with fleet.talks() as talks:
        runner = await fleet.start_runner("one", *LONG)
        await talks.create("s")
        await talks.run("s", "t1", "pid")
        pid = await pid_of(talks)
        runner.send(signal.SIGSTOP)
        dying = fleet.gates.hold("session.takeover.after_acquire", "", "kill")
        await talks.stub.CloseSession(session_pb2.CloseSessionRequest(session_id="s"), timeout=60)
        assert await fleet.processes["session"].exit_code() == -signal.SIGKILL
        await free(fleet)
        assert is_alive(pid)
        dying.release()
        await fleet.start_session("session-other")
    async with fleet.talks("session-other") as others:
        request = session_pb2.CloseSessionRequest(session_id="s", wait=True)
        answer = await others.stub.CloseSession(request, timeout=60)
        assert answer.session.state == session_pb2.SESSION_STATE_CLOSED
        assert not is_alive(pid)
        assert not (await fleet.lease()).live


@pytest.mark.parametrize(
    "moment", ["before_mark", "before_acquire", "after_acquire", "after_fence", "before_release"]
)
async def test_a_replica_killed_at_any_step_of_a_takeover_leaves_the_rest_to_another(
    fleet: Fleet, moment: str
) -> None:
    async with fleet.talks() as talks:
        pid = await hung(fleet, talks)
        first = fleet.processes["session"]
        gate = fleet.gates.hold(f"session.takeover.{moment}", "t1", "kill")
        command = await talks.stop("s", "t1")
        assert await first.exit_code() == -signal.SIGKILL
        gate.release()
        await fleet.start_session("session-other")
        async with fleet.talks("session-other") as others:
            told = await settled(others, "s", command.command_id, 15.0)
        assert told.outcome == session_pb2.COMMAND_OUTCOME_LOST
        assert not is_alive(pid)
        assert await fleet.endings() == [LOST]
        await free(fleet)


async def test_a_takeover_that_comes_after_the_turn_has_ended_hits_nothing(fleet: Fleet) -> None:
    """The replica stands still between mark and takeover; the turn ends, and the next one runs."""
    async with fleet.talks() as talks:
        await fleet.start_runner("one", *LONG)
        await talks.create("s")
        finishing = fleet.gates.hold("runner.finish_turn.before", "t1")
        late = fleet.gates.hold("session.takeover.before_acquire", "t1")
        await talks.start("s", "t1", "pid\nsay secret")
        await finishing.reached()
        pid = await pid_of(talks)
        token = (await fleet.lease()).token
        command = await talks.stop("s", "t1")
        await late.reached()
        finishing.release()
        assert (await talks.ended("s", "t1")).state == turn_pb2.TURN_STATE_COMPLETED
        # Under the marked token nothing begins: the runner gives it back, and takes a new one.
        await talks.start("s", "t2", WORK)
        await pid_of(talks, turn_id="t2")
        assert not is_alive(pid)
        assert (await fleet.lease()).token > token
        late.release()
        assert (await settled(talks, "s", command.command_id, 5.0)).outcome == (
            session_pb2.COMMAND_OUTCOME_NOT_RUNNING
        )
        again = await talks.stop("s", "t2")
        told = await settled(talks, "s", again.command_id, 10.0)
        assert told.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
        assert await fleet.endings() == [
            ("t1", "COMPLETED", "AGENT_ENDED"),
            ("t2", "STOPPED", "USER_STOP"),
        ]


async def test_the_late_takeover_of_a_killed_replica_hits_nothing(fleet: Fleet) -> None:
    """Marked and dead: the runner ends its turn by itself, and begins the next one under another token."""
    async with fleet.talks() as talks:
        await fleet.start_session("session-other")
        await fleet.start_runner("one", *LONG, session="session-other")
        await talks.create("s")
        finishing = fleet.gates.hold("runner.finish_turn.before", "t1")
        dying = fleet.gates.hold("session.takeover.before_acquire", "t1")
        await talks.start("s", "t1", "say done")
        await finishing.reached()
        token = (await fleet.lease()).token
        await talks.stop("s", "t1")
        await dying.reached()
        # Both stand still there; the one that is asked is killed.
        fleet.processes["session"].send(signal.SIGKILL)
        finishing.release()
        async with fleet.talks("session-other") as others:
            assert (await others.ended("s", "t1")).state == turn_pb2.TURN_STATE_COMPLETED
            await others.start("s", "t2", WORK)
            await pid_of(others, turn_id="t2")
            dying.release()
            assert (await fleet.lease()).token > token
            await others.stop("s", "t2")
            assert (await others.ended("s", "t2")).state == turn_pb2.TURN_STATE_STOPPED


async def test_while_the_workspace_cannot_be_asked_the_ending_waits_for_the_replaced_grant(
    fleet: Fleet,
) -> None:
    """Longer than the taker's own lease; nobody gets the session meanwhile, and nothing is told."""
    async with fleet.talks() as talks:
        pid = await hung(fleet, talks, "--lease-ttl", "9")
        workspace = fleet.processes["workspace"]
        workspace.send(signal.SIGSTOP)
        before = await fleet.lease()
        await talks.stop("s", "t1")

        async def is_taken() -> bool:
            return (await fleet.lease()).token > before.token

        await eventually(is_taken, within=STOP_DEADLINE + 3.0, what="the lease is taken over")
        replaced = before.expire_time.ToDatetime(tzinfo=UTC)
        while datetime.now(UTC) < replaced:
            turn = await talks.turn("s", "t1")
            now = await fleet.lease()
            if datetime.now(UTC) < replaced:
                assert not turn.HasField("end_time")
                assert (now.live, now.token, now.labels["role"]) == (True, before.token + 1, "service")
        turn = await talks.ended("s", "t1")
        assert turn.end_reason == turn_pb2.END_REASON_STOP_DEADLINE
        workspace.send(signal.SIGCONT)
        await dead(pid)
        assert await fleet.endings() == [LOST]


async def test_a_holder_that_does_not_begin_a_turn_is_replaced_and_the_turn_runs(fleet: Fleet) -> None:
    async with fleet.talks() as talks:
        await fleet.start_runner("one", *LONG)
        await talks.create("s")
        hanging = fleet.gates.hold("runner.begin_turn.before", "t1")
        await talks.start("s", "t1", "say begun")
        await hanging.reached()
        token = (await fleet.lease()).token
        hanging_on = fleet.processes["runner-one"]
        hanging_on.send(signal.SIGSTOP)
        hanging.release()
        await fleet.start_runner("two", *LONG)
        turn = await talks.ended("s", "t1")
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert turn.metadata.token > token + 1
        assert turn.metadata.runner_id.startswith("two/")
        hanging_on.send(signal.SIGCONT)
        # Its BeginTurn is refused.
        await eventually(lambda: bool(hanging_on.events("the turn was given up")), within=30)
        assert await fleet.endings() == [("t1", "COMPLETED", "AGENT_ENDED")]


async def test_a_holder_whose_task_hangs_is_replaced_by_another_runner(fleet: Fleet) -> None:
    """Its process is well: whenever it is asked, it says of the turn that it has it."""
    async with fleet.talks() as talks:
        forever = fleet.directory / "forever"
        await fleet.start_runner("one", *LONG, failpoints=f"runner.begin_turn.before=pause:{forever}")
        await talks.create("s")
        await talks.start("s", "t1", "say begun")
        reached = forever.with_name("forever.reached")
        await eventually(reached.exists, within=30, what="the first runner stands still")
        await fleet.start_runner("two", *LONG)
        turn = await talks.ended("s", "t1")
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert turn.metadata.runner_id.startswith("two/")
        assert await fleet.endings() == [("t1", "COMPLETED", "AGENT_ENDED")]


async def test_a_turn_that_outlasts_its_bound_by_far_is_stopped_from_here(fleet: Fleet) -> None:
    """Its runner stands still, and does not see to it; nobody else asked for a Stop."""
    async with fleet.talks() as talks:
        runner = await fleet.start_runner("one", *LONG)
        await talks.create("s", limits=turn_pb2.Limits(max_duration=Duration(seconds=2)))
        await talks.start("s", "t1", WORK)
        pid = await pid_of(talks)
        runner.send(signal.SIGSTOP)
        begun = time.monotonic()
        await talks.ended("s", "t1", within=2.0 + MARGIN + STOP_DEADLINE + 5.0)
        assert time.monotonic() - begun > STOP_DEADLINE
        assert not is_alive(pid)
        assert await fleet.endings() == [LOST]
