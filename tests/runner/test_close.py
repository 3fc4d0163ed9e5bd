"""A session is closed with a real agent: nothing of it is left but the transcript (F1, W4)."""

from __future__ import annotations

from pathlib import Path

from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from tests.processes import is_alive
from tests.runner.holding import live_leases, pid_in
from tests.runner.parts import Stack
from tests.runner.talks import PATIENCE, Talks, kinds_of

PROVISION = provision_pb2.ProvisionSpec()


async def close(talks: Talks, session_id: str) -> session_pb2.Session:
    request = session_pb2.CloseSessionRequest(session_id=session_id, wait=True)
    return (await talks.stub.CloseSession(request, timeout=PATIENCE)).session


async def check_gone(stack: Stack, closed: session_pb2.Session, pid: int) -> None:
    assert closed.state == session_pb2.SESSION_STATE_CLOSED
    assert not is_alive(pid)
    assert not Path(closed.binding.local.directory).exists()
    assert not [name for name in await live_leases(stack.owner.endpoint) if "/sessions/" in name]


async def test_an_agent_between_turns_is_ended_and_its_directory_removed(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    made = await talks.create("s", provision=PROVISION)
    turn = await talks.run("s", "one", "who are you\nrun echo kept > file")
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    pid = pid_in(await talks.said("s", "one"))
    assert is_alive(pid)
    assert Path(made.binding.local.directory, "file").read_text() == "kept\n"
    await check_gone(stack, await close(talks, "s"), pid)
    assert kinds_of(await talks.records("s"))[-1] == "turn_ended"


async def test_an_agent_at_work_is_stopped_first(stack: Stack, talks: Talks) -> None:
    await stack.add_runner()
    await talks.create("s", provision=PROVISION)
    await talks.start("s", "one", "who are you\nsleep 600")
    pid = pid_in(await talks.says("s", "one", "Sleeping"))
    await check_gone(stack, await close(talks, "s"), pid)
    turn = await talks.turn("s", "one")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_CLOSED)
    assert turn.stop_method == turn_pb2.STOP_METHOD_AGENT_CONFIRMED
    assert (await talks.records("s", "one"))[-1].body.turn_ended.end_reason == turn_pb2.END_REASON_CLOSED
