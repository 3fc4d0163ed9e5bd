"""Operations on whole sessions between processes: what a replica leaves that stands still in a step of one."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import grpc
import pytest
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.databases import fetch, fetch_value
from tests.processes import is_alive
from tests.runner.talks import Talks
from tests.system.fleet import Fleet, dead, pid_of
from tests.system.repeating import repeated

pytestmark = [pytest.mark.timeout(180), *repeated]

CLOSE, DELETE = "closed", "deleted"


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A workspace, two replicas of the session service, and a runner."""
    async with Fleet(database_url, tmp_path) as fleet:
        await fleet.start_workspace()
        await fleet.start_session()
        await fleet.start_session("session-other")
        await fleet.start_runner("one")
        yield fleet


@pytest.mark.parametrize(
    ("order", "step"),
    [
        (CLOSE, "session.close.after_end_runtime"),
        (CLOSE, "session.close.before_closed"),
        (DELETE, "session.close.after_delete_workspace"),
        (DELETE, "session.delete.before_gone"),
    ],
)
async def test_another_replica_takes_an_operation_up_at_its_deadline_and_the_first_one_changes_nothing_later(
    fleet: Fleet, order: str, step: str
) -> None:
    stuck, other = fleet.processes["session"], fleet.processes["session-other"]
    async with fleet.talks() as talks, fleet.talks("session-other") as others:
        await talks.create("s")
        await talks.run("s", "t1", "pid")
        pid = await pid_of(talks)
        other.send(signal.SIGSTOP)
        gate = fleet.gates.hold(step)
        if order == CLOSE:
            await talks.stub.CloseSession(session_pb2.CloseSessionRequest(session_id="s"), timeout=30)
        else:
            await talks.stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id="s"), timeout=30)
        await gate.reached()
        stuck.send(signal.SIGSTOP)
        gate.release()
        deadline = await deadline_of(fleet)
        other.send(signal.SIGCONT)
        done = f"session {order}"
        assert datetime.fromisoformat((await other.logged(done))["timestamp"]) >= deadline
        assert not is_alive(pid)
        stuck.send(signal.SIGCONT)
        # It goes on where it stood, and answers as the other one does.
        for each in (talks, others):
            await is_over(each, order)
        assert not stuck.events(done)
    assert await fetch_value(fleet.database_url, "SELECT count(*) FROM session.sessions") == 1


async def test_a_deleted_session_leaves_no_process_and_its_runner_serves_others(fleet: Fleet) -> None:
    async with fleet.talks() as talks:
        await talks.create("s")
        await talks.start("s", "t1", "pid\ncount to 1000000 every 0.01")
        pid = await pid_of(talks)
        request = session_pb2.DeleteSessionRequest(session_id="s", wait=True)
        assert not (await talks.stub.DeleteSession(request, timeout=60)).HasField("session")
        await dead(pid)
        assert not (await fleet.lease()).live
        assert await fetch(fleet.database_url, "SELECT FROM session.records") == []
        await talks.create("other")
        await talks.run("other", "t1", "say hello")
    assert await fleet.endings("other") == [("t1", "COMPLETED", "AGENT_ENDED")]


async def deadline_of(fleet: Fleet) -> datetime:
    """When the operation is taken up by whoever is there."""
    deadline: datetime = await fetch_value(
        fleet.database_url, "SELECT operation_deadline FROM session.sessions"
    )
    return deadline


async def is_over(talks: Talks, order: str) -> None:
    """Return when the session is closed, or nobody knows it."""

    async def over() -> bool:
        try:
            session = await talks.session("s")
        except grpc.aio.AioRpcError as error:
            return order == DELETE and error.code() is grpc.StatusCode.NOT_FOUND
        return order == CLOSE and session.state == session_pb2.SESSION_STATE_CLOSED

    await eventually(over, within=30, what=f"the session is {order}")
