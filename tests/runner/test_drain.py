"""The drain of a runner, ordered by an operator (F11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from moorage.common.v1 import turn_pb2
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub
from moorage.session.v1 import session_pb2

from services.common import failpoints
from services.common.channels import open_channel
from services.common.errors import InvalidArgument
from services.common.status import from_rpc_error
from tests.conditions import eventually
from tests.gates import Gates
from tests.processes import is_alive
from tests.runner.holding import live_leases, pid_in
from tests.runner.parts import Stack
from tests.runner.talks import Talks

if TYPE_CHECKING:
    from moorage.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub

COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
NOW, LATER = Duration(), Duration(seconds=600)


class Operator:
    """Calls a runner as an operator does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: RunnerServiceAsyncStub = RunnerServiceStub(channel)
        self._health: Any = HealthStub(channel)

    async def drain(self, grace: Duration | None = None, *, wait: bool = False) -> runner_pb2.DrainResponse:
        return await self._stub.Drain(runner_pb2.DrainRequest(grace=grace, wait=wait), timeout=30)

    async def dispatch(self, session_id: str, turn_id: str) -> str:
        request = runner_pb2.DispatchTurnRequest(project="default", session_id=session_id, turn_id=turn_id)
        answer = await self._stub.DispatchTurn(request, timeout=10)
        return runner_pb2.DispatchResult.Name(answer.result).removeprefix("DISPATCH_RESULT_")

    async def serves(self) -> bool:
        answer = await self._health.Check(HealthCheckRequest(service="moorage.runner.v1.RunnerService"))
        return bool(answer.status == HealthCheckResponse.SERVING)

    async def drains(self) -> bool:
        return not await self.serves()


@pytest.fixture
async def runner(stack: Stack) -> Any:
    """A ready runner."""
    return await stack.add_runner()


@pytest.fixture
async def operator(runner: Any) -> AsyncIterator[Operator]:
    """Of this runner."""
    async with open_channel(runner.endpoint) as channel:
        yield Operator(channel)


async def test_parked_agents_end_first_and_a_turn_goes_on_until_the_shorter_grace_has_passed(
    stack: Stack, talks: Talks, operator: Operator, runner: Any
) -> None:
    for session_id in ("parked", "busy"):
        await talks.create(session_id)
    await talks.run("parked", "t", "who are you")
    pid = pid_in(await talks.said("parked", "t"))
    await talks.start("busy", "t", "say begun\nsleep 600")
    await talks.says("busy", "t", "begun")
    assert await operator.serves()
    begun = await operator.drain(LATER)
    assert (begun.holder, begun.executions, begun.runtimes) == (runner.holder, 1, 1)
    assert not await operator.serves()

    async def only_the_busy_one() -> bool:
        return await live_leases(stack.owner.endpoint, "") == [
            "instances/local",
            "projects/default/sessions/busy",
        ]

    await eventually(only_the_busy_one, what="the other leases were released")
    assert not is_alive(pid)
    assert await operator.dispatch("parked", "next") == "DRAINING"
    assert await operator.dispatch("busy", "t") == "ACCEPTED"
    again = await operator.drain(LATER)
    assert (again.executions, again.runtimes) == (1, 0)
    assert (await talks.turn("busy", "t")).state == turn_pb2.TURN_STATE_RUNNING
    # Somebody has less patience.
    over = await operator.drain(NOW, wait=True)
    assert (over.executions, over.runtimes) == (0, 0)
    turn = await talks.turn("busy", "t")
    assert (turn.state, turn.end_reason) == (STOPPED, turn_pb2.END_REASON_DRAINED)
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED
    assert await live_leases(stack.owner.endpoint, "") == ["instances/local"]
    # It is not for ever, for its process ends.
    await stack.runners["one"].stop()
    await stack.add_runner()
    assert (await talks.run("busy", "next", "say anew")).state == COMPLETED


async def test_a_turn_that_is_not_begun_yet_is_left_to_another_runner(
    stack: Stack, talks: Talks, operator: Operator, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = Gates(tmp_path / "gates")
    monkeypatch.setitem(failpoints._active, "*", failpoints.parse(gates.failpoints)["*"])
    await talks.create("s")
    gate = gates.hold("runner.begin_turn.before")
    await talks.start("s", "t", "say here")
    await gate.reached()
    draining = asyncio.create_task(operator.drain(NOW, wait=True))

    # A turn that is offered before is taken, and the same again.
    await eventually(operator.drains)
    assert await operator.dispatch("other", "t") == "DRAINING"
    other = await stack.add_runner("two")
    gate.release()
    await draining
    turn = await talks.ended("s", "t")
    assert turn.state == COMPLETED
    assert turn.metadata.runner_id == other.holder


async def test_a_turn_can_be_stopped_while_its_runner_drains(talks: Talks, operator: Operator) -> None:
    await talks.create("s")
    await talks.start("s", "t", "say begun\nsleep 600")
    await talks.says("s", "t", "begun")
    await operator.drain(LATER)
    command = await talks.stop("s", "t")
    over = await operator.drain(wait=True)
    assert (over.executions, over.runtimes) == (0, 0)
    turn = await talks.turn("s", "t")
    assert (turn.state, turn.end_reason) == (STOPPED, turn_pb2.END_REASON_USER_STOP)
    assert (turn.stop_method, turn.runtime_after) == (
        turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
        turn_pb2.RUNTIME_AFTER_ENDED,
    )
    request = session_pb2.GetCommandRequest(session_id="s", command_id=command.command_id)
    settled = (await talks.stub.GetCommand(request, timeout=10)).command
    assert settled.outcome == session_pb2.COMMAND_OUTCOME_STOPPED


async def test_a_negative_grace_is_refused(operator: Operator) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await operator.drain(Duration(seconds=-1))
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidArgument)
    assert [violation.field for violation in error.violations] == ["grace"]
    assert await operator.serves()
