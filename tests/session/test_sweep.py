"""The sweep (F9), with a real owner and runners that say what they execute."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.runner.v1 import runner_pb2

from services.common.channels import Channels
from services.common.clock import SystemClock
from services.session.clients import Leases, Runners
from services.session.recovery.sweep import Sweep
from services.session.store.dispatch import DispatchStore
from services.session.store.takeover import TakeoverStore
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.session.desks import Desk, Holder
from tests.session.fake_runners import FakeRunner, fake_runner
from tests.session.fake_workspaces import FakeWorkspace
from tests.session.leasing import Taker
from tests.session.takings import at_work, held, is_over, taking


@contextlib.asynccontextmanager
async def sweeping(desk: Desk, owner: grpc.aio.Channel, workspace: FakeWorkspace) -> AsyncIterator[None]:
    """A replica's sweep at work."""
    async with taking(desk, owner, workspace) as (taker, _), Channels() as channels:
        sweep = Sweep(
            DispatchStore(desk.database),
            TakeoverStore(desk.database),
            Leases(owner),
            Runners(channels),
            taker,
            SystemClock(),
            interval=0.2,
        )
        async with at_work(sweep.run()):
            yield


@pytest.fixture
async def runner() -> AsyncIterator[FakeRunner]:
    async with fake_runner("one") as runner:
        yield runner


async def begun(
    desk: Desk, taker: Taker, runner: FakeRunner, session_id: str = "s1"
) -> tuple[Holder, lease_pb2.Lease]:
    """A turn that the runner has begun, under a lease that is live."""
    holder, lease = await held(
        desk, taker, session_id, name=runner.holder, endpoint=runner.endpoint, ttl=600.0
    )
    await holder.begin()
    return holder, lease


def execution(holder: Holder) -> runner_pb2.Execution:
    return runner_pb2.Execution(
        project="default",
        session_id=holder.key.session_id,
        turn_id=holder.turn_id,
        attempt_id=holder.attempt_id,
    )


async def test_a_holder_is_told_to_end_what_it_does_not_run_and_nothing_else(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    missing, _ = await begun(leased_desk, taker, runner)
    running, _ = await begun(leased_desk, taker, runner, "s2")
    runner.executions = [execution(running)]
    async with sweeping(leased_desk, owner, workspace):
        await eventually(lambda: len(runner.settled) >= 2)
        await missing.finish(state=turn_pb2.TURN_STATE_LOST, end_reason=turn_pb2.END_REASON_EXECUTION_MISSING)
    assert {(request.session_id, request.turn_id, request.attempt_id) for request in runner.settled} == {
        ("s1", "t1", "a1")
    }
    assert not await is_over(leased_desk, "s2")
    assert not workspace.claims


async def test_another_attempt_than_the_one_that_began_it_does_not_count(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    holder, _ = await begun(leased_desk, taker, runner)
    runner.executions = [execution(leased_desk.holder(attempt_id="a2"))]
    async with sweeping(leased_desk, owner, workspace):
        await eventually(lambda: bool(runner.settled))
    assert runner.settled[0].attempt_id == holder.attempt_id


async def test_what_ended_while_the_holder_was_asked_keeps_its_runtime(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    holder, _ = await begun(leased_desk, taker, runner)

    async def end() -> None:
        if not await is_over(leased_desk):
            await holder.finish(runtime_after=turn_pb2.RUNTIME_AFTER_WARM)

    runner.list_act = end
    async with sweeping(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
        await begun(leased_desk, taker, runner, "s2")
        await eventually(lambda: bool(runner.settled))
    assert {request.session_id for request in runner.settled} == {"s2"}


async def test_what_another_process_at_the_endpoint_does_not_run_says_nothing(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    await begun(leased_desk, taker, runner)
    runner.holder = "one/2"
    async with sweeping(leased_desk, owner, workspace):
        await eventually(lambda: runner.listed > 2)
    assert not runner.settled


async def test_a_holder_that_knows_nothing_of_its_session_loses_it(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    """It renews the lease, and neither runs the turn nor could end it: nobody else would."""
    _, lease = await begun(leased_desk, taker, runner)
    runner.settle_result = runner_pb2.DELIVERY_RESULT_NOT_HELD
    async with sweeping(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
    turn = await leased_desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.EXECUTION_MISSING)
    assert workspace.claims == [("ws_s1", lease.token + 1, "")]


async def test_a_runner_that_hangs_does_not_hold_up_the_others(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, runner: FakeRunner
) -> None:
    async with fake_runner("two") as hung:
        hung.hangs = True
        await begun(leased_desk, taker, hung, "hung")
        await begun(leased_desk, taker, runner)
        async with sweeping(leased_desk, owner, workspace):
            await eventually(lambda: len(runner.settled) >= 2)
    assert hung.listed == 1
