"""Dispatching turns: taken once, refused with a reason, shown while they last (T4, F9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub
from moorage.session.v1 import journal_pb2

from services.common.channels import open_channel
from services.common.errors import InvalidArgument
from services.common.status import from_rpc_error
from services.runner.profiles import load_profiles
from tests.conditions import eventually
from tests.fakes import Gate, journal_between
from tests.runner.parts import Stack
from tests.runner.talks import Talks

if TYPE_CHECKING:
    from moorage.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub

ACCEPTED = runner_pb2.DISPATCH_RESULT_ACCEPTED
FULL = runner_pb2.DISPATCH_RESULT_FULL


class Dispatcher:
    """Calls a runner as the session service does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: RunnerServiceAsyncStub = RunnerServiceStub(channel)

    async def dispatch(self, session_id: str, turn_id: str) -> runner_pb2.DispatchTurnResponse:
        request = runner_pb2.DispatchTurnRequest(project="default", session_id=session_id, turn_id=turn_id)
        return await self.stub.DispatchTurn(request, timeout=10)

    async def executions(self, project: str = "") -> list[runner_pb2.Execution]:
        request = runner_pb2.ListExecutionsRequest(project=project)
        return list((await self.stub.ListExecutions(request, timeout=10)).executions)


@pytest.fixture
async def runner(stack: Stack) -> Any:
    """A ready runner."""
    return await stack.add_runner()


@pytest.fixture
async def dispatcher(runner: Any) -> AsyncIterator[Dispatcher]:
    """To this runner."""
    async with open_channel(runner.endpoint) as channel:
        yield Dispatcher(channel)


async def lease_of(stack: Stack, resource: str) -> lease_pb2.Lease:
    """As it stands."""
    async with open_channel(stack.owner.endpoint) as channel:
        return (await LeaseServiceStub(channel).GetLease(lease_pb2.GetLeaseRequest(resource=resource))).lease


async def speaking(talks: Talks, session_id: str, turn_id: str, text: str) -> None:
    """Wait until the agent has said this."""

    async def says() -> bool:
        return text in await talks.said(session_id, turn_id)

    await eventually(says, what=f"{text!r} was said")


async def test_a_turn_that_is_dispatched_again_is_the_same_execution(
    talks: Talks, dispatcher: Dispatcher, runner: Any
) -> None:
    await talks.create("s")
    await talks.start("s", "t", "say once\nsleep 600")
    await speaking(talks, "s", "t", "once")
    before = await dispatcher.executions()
    again = await asyncio.gather(*(dispatcher.dispatch("s", "t") for _ in range(5)))
    assert {answer.result for answer in again} == {ACCEPTED}
    assert {answer.holder for answer in again} == {runner.holder}
    assert await dispatcher.executions() == before
    turn = await talks.turn("s", "t")
    assert before[0].attempt_id
    assert (before[0].turn_id, before[0].token) == ("t", turn.metadata.token)
    assert before[0].phase == turn_pb2.TURN_PHASE_PROMPTED
    assert await talks.said("s", "t") == "onceSleeping 600 s.\n"


async def test_dispatches_in_the_same_instant_make_one_execution(talks: Talks, stack: Stack) -> None:
    await talks.create("s")
    await talks.start("s", "t", "say once")
    runner = await stack.add_runner()
    async with open_channel(runner.endpoint) as channel:
        dispatcher = Dispatcher(channel)
        answers = await asyncio.gather(*(dispatcher.dispatch("s", "t") for _ in range(20)))
    turn = await talks.ended("s", "t")
    assert ACCEPTED in {answer.result for answer in answers}
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said("s", "t") == "once"


async def test_another_turn_of_a_busy_session_is_refused(talks: Talks, dispatcher: Dispatcher) -> None:
    await talks.create("s")
    await talks.start("s", "t", "say begun\nsleep 600")
    await speaking(talks, "s", "t", "begun")
    answer = await dispatcher.dispatch("s", "other")
    assert answer.result == FULL
    assert [execution.turn_id for execution in await dispatcher.executions()] == ["t"]


async def test_the_next_turn_follows_at_once_under_the_same_token(talks: Talks, stack: Stack) -> None:
    await stack.add_runner()
    await talks.create("s")
    turns = [await talks.run("s", f"t{number}", f"say {number}") for number in range(5)]
    assert [turn.state for turn in turns] == [turn_pb2.TURN_STATE_COMPLETED] * 5
    assert len({turn.metadata.token for turn in turns}) == 1
    assert turns[4].metadata.previous_turn_id == "t3"


async def test_without_room_to_park_the_next_turn_follows_under_a_higher_token(
    talks: Talks, stack: Stack
) -> None:
    await stack.add_runner(park_limit=0)
    await talks.create("s")
    turns = [await talks.run("s", f"t{number}", f"say {number}") for number in range(3)]
    assert [turn.runtime_after for turn in turns] == [turn_pb2.RUNTIME_AFTER_ENDED] * 3
    tokens = [turn.metadata.token for turn in turns]
    assert tokens == sorted(set(tokens))


async def test_a_turn_that_follows_one_whose_end_is_not_acknowledged_yet_waits_for_its_place(
    talks: Talks, stack: Stack
) -> None:
    gate = Gate()

    async def hold_the_repetition(_: object) -> None:
        if len(between.requests(journal_pb2.FinishTurnRequest)) > 1:
            await gate()

    async with journal_between(stack.session.service.journal_endpoint) as between:
        between.losing["FinishTurn"] = 1
        between.before["FinishTurn"] = hold_the_repetition
        runner = await stack.add_runner(journal_address=between.endpoint)
        await talks.create("s")
        await talks.run("s", "t", "say first")
        await gate.reached.wait()
        await talks.start("s", "next", "say second")
        async with open_channel(runner.endpoint) as channel:
            dispatcher = Dispatcher(channel)
            dispatches = [asyncio.create_task(dispatcher.dispatch("s", "next")) for _ in range(5)]
            assert [execution.turn_id for execution in await dispatcher.executions()] == ["t"]
            gate.open.set()
            answers = await asyncio.gather(*dispatches)
        assert {answer.result for answer in answers} == {ACCEPTED}
        assert (await talks.ended("s", "next")).state == turn_pb2.TURN_STATE_COMPLETED
        await stack.runners["one"].stop()


async def test_a_runner_takes_no_more_than_its_capacity(talks: Talks, stack: Stack) -> None:
    runner = await stack.add_runner(capacity=1)
    for session_id in ("a", "b"):
        await talks.create(session_id)
    await talks.start("a", "t", "say begun\nsleep 600")
    await speaking(talks, "a", "t", "begun")
    async with open_channel(runner.endpoint) as channel:
        assert (await Dispatcher(channel).dispatch("b", "t")).result == FULL


async def test_a_session_that_another_holds_is_refused_naming_the_holder(
    talks: Talks, stack: Stack, dispatcher: Dispatcher
) -> None:
    await talks.create("s")
    async with open_channel(stack.owner.endpoint) as channel:
        request = lease_pb2.AcquireLeaseRequest(
            resource="projects/default/sessions/s", holder="else/where", labels={"role": "runner"}
        )
        await LeaseServiceStub(channel).AcquireLease(request)
    answer = await dispatcher.dispatch("s", "t")
    assert answer.result == runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE
    assert answer.lease_holder == "else/where"
    assert await dispatcher.executions() == []


async def test_a_turn_that_cannot_be_begun_leaves_nothing_behind(
    talks: Talks, stack: Stack, dispatcher: Dispatcher
) -> None:
    await talks.create("s")
    assert (await dispatcher.dispatch("s", "never-admitted")).result == ACCEPTED

    async def is_gone() -> bool:
        return not await dispatcher.executions()

    await eventually(is_gone)
    assert not (await lease_of(stack, "projects/default/sessions/s")).live
    assert (await talks.run("s", "t", "say fine")).state == turn_pb2.TURN_STATE_COMPLETED


async def test_the_lease_is_released_after_the_turn_when_nothing_is_parked(
    talks: Talks, stack: Stack
) -> None:
    await stack.add_runner(park_limit=0)
    await talks.create("s")
    await talks.run("s", "t", "say fine")

    async def is_released() -> bool:
        return not (await lease_of(stack, "projects/default/sessions/s")).live

    await eventually(is_released)


async def test_a_draining_runner_refuses_turns_and_is_not_registered_while_its_own_finish(
    talks: Talks, stack: Stack
) -> None:
    runner = await stack.add_runner(drain_timeout=30.0)
    for session_id in ("a", "b"):
        await talks.create(session_id)
    await talks.start("a", "t", "say begun\nsleep 1\nsay done")
    await speaking(talks, "a", "t", "begun")
    async with open_channel(runner.endpoint) as channel:
        dispatcher = Dispatcher(channel)
        draining = asyncio.create_task(runner.drain())

        async def is_unregistered() -> bool:
            return not (await lease_of(stack, "runners/one")).live

        await eventually(is_unregistered)
        assert (await dispatcher.dispatch("b", "t")).result == runner_pb2.DISPATCH_RESULT_DRAINING
        assert (await dispatcher.dispatch("a", "t")).result == ACCEPTED
        await draining
    assert (await talks.ended("a", "t")).state == turn_pb2.TURN_STATE_COMPLETED
    assert (await talks.said("a", "t")).endswith("done")


async def test_executions_are_listed_by_project(talks: Talks, dispatcher: Dispatcher) -> None:
    for session_id in ("b", "a"):
        await talks.create(session_id)
        await talks.start(session_id, "t", "say begun\nsleep 600")
    for session_id in ("b", "a"):
        await speaking(talks, session_id, "t", "begun")
    assert [execution.session_id for execution in await dispatcher.executions()] == ["a", "b"]
    assert len(await dispatcher.executions("default")) == 2
    assert await dispatcher.executions("other") == []


async def test_the_runner_registers_what_the_session_service_needs(stack: Stack) -> None:
    runner = await stack.add_runner("west", pool="gpu", capacity=7)
    profiles = load_profiles()
    lease = await lease_of(stack, "runners/west")
    assert lease.live
    assert (lease.holder, lease.endpoint) == (runner.holder, runner.endpoint)
    assert dict(lease.labels) == {
        "role": "runner",
        "pool": "gpu",
        "capacity": "7",
        "profiles": ",".join(sorted(profiles)),
        "networked": ",".join(sorted(set(profiles) - {"demo"})),
    }


async def test_a_second_runner_of_the_same_name_waits_until_the_first_has_gone(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    first = await stack.add_runner("one")
    part = stack.part("one")
    starting = asyncio.create_task(part.start())
    await eventually(lambda: "registering as runners/one failed" in caplog.text)
    assert any(f"held by {first.holder}" in str(vars(record)) for record in caplog.records)
    assert not starting.done()
    assert (await lease_of(stack, "runners/one")).holder == first.holder
    await stack.runners["one"].stop()
    await starting
    assert (await lease_of(stack, "runners/one")).holder == part.service.holder
    await part.stop()


@pytest.mark.parametrize(
    ("field", "value"),
    [("project", ""), ("project", "No!"), ("session_id", ""), ("session_id", "a/b"), ("turn_id", "x" * 129)],
)
async def test_bad_names_are_refused(dispatcher: Dispatcher, field: str, value: str) -> None:
    names = {"project": "default", "session_id": "s", "turn_id": "t", field: value}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dispatcher.stub.DispatchTurn(runner_pb2.DispatchTurnRequest(**names))
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidArgument)
    assert [violation.field for violation in error.violations] == [field]
