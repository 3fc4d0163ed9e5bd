"""kill -9 at the worst moments of a Stop and of a turn: right outcome, one end record, in time (S1, S10, F8)."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.databases import fetch_value
from tests.processes import is_alive
from tests.runner.talks import Talks
from tests.system.fleet import Fleet, pid_of, settled
from tests.system.repeating import repeated

pytestmark = [pytest.mark.timeout(180), *repeated]

LEASE = 3.0
IN_TIME = LEASE + 2.0
SHORT = ("--lease-ttl", str(LEASE))
WORK = "pid\ncount to 1000000 every 0.01"
STOPPED = ("t1", "STOPPED", "USER_STOP")
LEASE_LOST = ("t1", "LOST", "LEASE_LOST")


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A workspace, two replicas, and a runner that writes to the first one."""
    # Another replica leaves a Stop alone for 2 s, and a killed one takes its time to be back.
    async with Fleet(database_url, tmp_path, stop_deadline=15.0) as fleet:
        await fleet.start_workspace()
        await fleet.start_session()
        await fleet.start_session("session-other")
        await fleet.start_runner("one", *SHORT)
        yield fleet


@pytest.fixture
async def talks(fleet: Fleet) -> AsyncIterator[Talks]:
    """A client of the replica that is not killed."""
    async with fleet.talks("session-other") as talks:
        yield talks


async def working(talks: Talks) -> int:
    """A turn in progress; its agent's pid."""
    await talks.create("s")
    await talks.start("s", "t1", WORK)
    return await pid_of(talks)


async def killed_by(fleet: Fleet, name: str, moment: str) -> None:
    """The process has come to the moment at which it is killed."""
    assert await fleet.processes[name].exit_code() == -signal.SIGKILL, moment


async def test_between_the_commit_of_a_stop_and_its_delivery(fleet: Fleet, talks: Talks) -> None:
    """The one that is killed stays dead: the other one, which the runner writes to, delivers."""
    await working(talks)
    fleet.gates.hold("session.stop_turn.after_commit", "", "kill")
    with pytest.raises(grpc.aio.AioRpcError):
        await talks.stub.StopTurn(session_pb2.StopTurnRequest(session_id="s"), timeout=10)
    await killed_by(fleet, "session-other", "after the commit")
    killed_at = time.monotonic()
    command_id = await fetch_value(fleet.database_url, "SELECT command_id FROM session.commands")
    async with fleet.talks() as others:
        told = await settled(others, "s", command_id, IN_TIME)
    assert time.monotonic() - killed_at < IN_TIME
    assert told.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
    assert await fleet.endings() == [STOPPED]


@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
async def test_between_delivery_and_settlement_and_when_the_answer_to_the_settlement_is_lost(
    fleet: Fleet, talks: Talks, moment: str
) -> None:
    """The runner repeats what it could not say, or does not know to have said."""
    await working(talks)
    dying = fleet.gates.hold(f"session.finish_turn.{moment}", "", "kill")
    command = await talks.stop("s", "t1")
    await killed_by(fleet, "session", moment)
    dying.release()
    await fleet.start_session()
    told = await settled(talks, "s", command.command_id, IN_TIME)
    assert told.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
    assert (told.stop_method, told.runtime_after) == (
        turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        turn_pb2.RUNTIME_AFTER_WARM,
    )
    assert await fleet.endings() == [STOPPED]


@pytest.mark.parametrize(
    "moment", ["runner.stop.received", "runner.stop.before_cancel", "runner.finish_turn.before"]
)
async def test_a_runner_between_the_acceptance_of_a_stop_and_the_end_of_its_turn(
    fleet: Fleet, talks: Talks, moment: str
) -> None:
    pid = await working(talks)
    fleet.gates.hold(moment, "t1", "kill")
    command = await talks.stop("s", "t1")
    await killed_by(fleet, "runner-one", moment)
    told = await settled(talks, "s", command.command_id, IN_TIME)
    assert told.outcome == session_pb2.COMMAND_OUTCOME_LOST
    assert await fleet.endings() == [LEASE_LOST]
    assert not is_alive(pid)


async def test_a_runner_after_the_settlement_of_a_stop(fleet: Fleet, talks: Talks) -> None:
    """What was stored stays; the runtime that was to stay warm is gone with its runner."""
    pid = await working(talks)
    fleet.gates.hold("runner.finish_turn.after", "t1", "kill")
    command = await talks.stop("s", "t1")
    await killed_by(fleet, "runner-one", "after the settlement")
    told = await settled(talks, "s", command.command_id, IN_TIME)
    assert told.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
    assert await fleet.endings() == [STOPPED]
    await eventually(lambda: not is_alive(pid), within=LEASE + 3.0, what="the agent is dead")


async def test_a_killed_runner_leaves_no_process_and_no_turn_though_nobody_starts_another(
    fleet: Fleet, talks: Talks
) -> None:
    pid = await working(talks)
    fleet.processes["runner-one"].send(signal.SIGKILL)
    killed_at = time.monotonic()
    await talks.ended("s", "t1")
    assert time.monotonic() - killed_at < LEASE + 3.0
    assert not is_alive(pid)
    assert await fleet.endings() == [LEASE_LOST]
    kinds = [record.body.WhichOneof("body") for record in await talks.records("s", "t1")]
    assert kinds[-2:] == ["error", "turn_ended"]


async def test_the_parked_runtime_of_a_killed_runner_is_gone(fleet: Fleet, talks: Talks) -> None:
    await talks.create("s")
    assert (await talks.run("s", "t1", "pid")).state == turn_pb2.TURN_STATE_COMPLETED
    pid = await pid_of(talks)
    assert is_alive(pid)
    fleet.processes["runner-one"].send(signal.SIGKILL)
    await eventually(lambda: not is_alive(pid), within=LEASE + 3.0, what="the agent is dead")
    assert await fleet.endings() == [("t1", "COMPLETED", "AGENT_ENDED")]


async def test_both_replicas_killed_and_the_runner_too(fleet: Fleet, talks: Talks) -> None:
    """Whoever comes back first finds all of it in the rows."""
    pid = await working(talks)
    command = fleet.gates.hold("session.deliver_stop.before_send", "", "kill")
    with contextlib.suppress(grpc.aio.AioRpcError):
        await talks.stub.StopTurn(session_pb2.StopTurnRequest(session_id="s"), timeout=10)
    await killed_by(fleet, "session-other", "before the delivery")
    fleet.processes["session"].send(signal.SIGKILL)
    fleet.processes["runner-one"].send(signal.SIGKILL)
    command.release()
    await fleet.start_session("session-other")
    command_id = await fetch_value(fleet.database_url, "SELECT command_id FROM session.commands")
    told = await settled(talks, "s", command_id, IN_TIME)
    assert told.outcome == session_pb2.COMMAND_OUTCOME_LOST
    assert not is_alive(pid)
    assert await fleet.endings() == [LEASE_LOST]
