"""Takeover (S6, T3), with a real owner: it ends what it is meant for, and never anything that came later."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import grpc
import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.owner.v1 import lease_pb2

from services.common.clock import SystemClock
from services.common.errors import MoorageError
from services.session.clients import Leases
from services.session.commands import CommandOutcome
from services.session.recovery.takeover import Takeover
from services.session.recovery.targets import Target
from services.session.recovery.watchdog import Watchdog
from services.session.store.dispatch import DispatchStore
from services.session.store.takeover import TakeoverStore
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.session.desks import Desk, Holder
from tests.session.fake_workspaces import FakeWorkspace
from tests.session.leasing import Taker
from tests.session.stops import all_commands, read, stop
from tests.session.takings import at_work, end_of, held, is_over, taking

NOW = "UPDATE session.turns SET stop_deadline = clock_timestamp() WHERE stop_deadline IS NOT NULL"
LATE = "UPDATE session.turns SET admit_time = clock_timestamp() - interval '1 h'"
S1 = "WHERE session_id = 's1'"
PATIENCE = 1.0


@contextlib.asynccontextmanager
async def taking_over(
    desk: Desk, owner: grpc.aio.Channel, workspace: FakeWorkspace, **settings: Any
) -> AsyncIterator[None]:
    """A replica's takeovers and watchdog at work."""
    patience = {"admitted_patience": PATIENCE, "close_patience": PATIENCE, "interval": 0.5, **settings}
    leases, clock = Leases(owner), SystemClock()
    async with taking(desk, owner, workspace) as (taker, _):
        takeover = Takeover(TakeoverStore(desk.database), leases, taker, clock, **patience)
        watchdog = Watchdog(DispatchStore(desk.database), leases, taker, clock, interval=0.5)
        async with at_work(takeover.run(), watchdog.run()):
            yield


async def stopping(
    desk: Desk, taker: Taker, session_id: str = "s1", *, ttl: float = 600.0
) -> tuple[Holder, lease_pb2.Lease]:
    """A live holder that does not carry out the Stop of what it began."""
    holder, lease = await held(desk, taker, session_id, ttl=ttl)
    await holder.begin()
    await stop(desk, "t1", session_id)
    return holder, lease


async def mark(desk: Desk, turn_id: str = "t1") -> int | None:
    """The first step of the takeover of an overdue Stop: the token that the second one names."""
    async with desk.database.connection() as connection:
        await connection.execute(NOW)
    return await TakeoverStore(desk.database).mark_stop(desk.holder().key, turn_id)


async def test_a_stop_that_is_not_carried_out_in_time_is_taken_over(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    holder, lease = await stopping(leased_desk, taker)
    other, _ = await held(leased_desk, taker, "other", ttl=600.0)
    await other.begin()
    async with taking_over(leased_desk, owner, workspace):
        await execute(database_url, NOW)
        await eventually(lambda: is_over(leased_desk))
        await eventually(lambda: is_free(taker))
    turn = await leased_desk.read_turn()
    assert (turn.state, turn.end_reason, turn.token) == (TurnState.LOST, EndReason.STOP_DEADLINE, lease.token)
    error, ended = (await leased_desk.transcript())[-2:]
    assert (error.record_id, ended.record_id) == ("t1/error", "t1/turn_ended")
    told = record_pb2.RecordBody.FromString(error.body).error.error
    assert (told.code, told.metadata["runner_id"]) == ("STOP_DEADLINE", "runner/1")
    (command,) = await all_commands(leased_desk)
    assert command.outcome is CommandOutcome.LOST
    assert workspace.claims == [("ws_s1", lease.token + 1, "")]
    assert (await taker.read("s1")).token == lease.token + 1
    assert await holder.append(1) == ["STALE_OWNER"]
    with pytest.raises(MoorageError) as refusal:
        await holder.finish()
    assert refusal.value.reason_name == "STALE_OWNER"
    assert len(await leased_desk.transcript()) == 4
    assert not await is_over(leased_desk, "other")


async def is_free(taker: Taker, session_id: str = "s1") -> bool:
    return not (await taker.read(session_id)).live


async def test_several_takers_end_a_turn_once(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    sessions = [f"s{number}" for number in range(8)]
    for session_id in sessions:
        await stopping(leased_desk, taker, session_id)
    async with (
        taking_over(leased_desk, owner, workspace),
        taking_over(leased_desk, owner, workspace),
        taking_over(leased_desk, owner, workspace),
    ):
        await execute(database_url, NOW)
        for session_id in sessions:
            await eventually(lambda session_id=session_id: is_over(leased_desk, session_id))  # type: ignore[misc]
    for session_id in sessions:
        turn = await leased_desk.read_turn(session_id=session_id)
        assert turn.end_reason is EndReason.STOP_DEADLINE
        kinds = [record.kind for record in await leased_desk.transcript(session_id)]
        assert kinds == ["user_message", "turn_started", "error", "turn_ended"]


async def test_a_call_that_comes_late_does_not_hit_the_next_turn_of_another_token(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    holder, lease = await stopping(leased_desk, taker)
    token = await mark(leased_desk)
    assert token == lease.token
    await holder.finish()
    await taker.release(lease)
    await leased_desk.turn("t2")
    answer = await taker.session("s1", "runner/1")
    next_one = leased_desk.holder(shown=answer.grant, turn_id="t2", attempt_id="a2")
    await next_one.begin()
    async with taking(leased_desk, owner, workspace) as (late, _):
        target = Target(key=holder.key, workspace_id="ws_s1", turn_id="t1")
        assert not await late.take(target, EndReason.STOP_DEADLINE, name="takeover", replacing=token)
    assert not workspace.claims
    await next_one.finish()
    assert (await leased_desk.read_turn("t2")).state is TurnState.COMPLETED
    assert (await read(leased_desk, (await all_commands(leased_desk))[0].command_id)).outcome == "NOT_RUNNING"


async def test_a_call_that_comes_late_finds_the_next_turn_not_begun(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    """The holder still has the token that is to be taken over; with it, it begins nothing."""
    holder, lease = await stopping(leased_desk, taker)
    token = await mark(leased_desk)
    await holder.finish(runtime_after=turn_pb2.RUNTIME_AFTER_WARM)
    await leased_desk.turn("t2")
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, turn_id="t2", attempt_id="a2").begin()
    assert refusal.value.reason_name == "STALE_OWNER"
    async with taking(leased_desk, owner, workspace) as (late, _):
        target = Target(key=holder.key, workspace_id="ws_s1", turn_id="t1")
        assert await late.take(target, EndReason.STOP_DEADLINE, name="takeover", replacing=token)
    assert workspace.raised == ["ws_s1"]
    assert (await leased_desk.read_turn("t1")).state is TurnState.COMPLETED
    assert (await leased_desk.read_turn("t2")).state is TurnState.ADMITTED
    answer = await taker.session("s1", "runner/2")
    assert answer.lease.token == lease.token + 2
    await leased_desk.holder(shown=answer.grant, turn_id="t2", attempt_id="a2").begin()


async def test_a_turn_that_ended_before_the_mark_is_not_taken_over(leased_desk: Desk, taker: Taker) -> None:
    holder, _ = await stopping(leased_desk, taker)
    await holder.finish()
    assert await mark(leased_desk) is None
    await leased_desk.turn("t2")
    assert await mark(leased_desk) is None
    await replace(holder, turn_id="t2", attempt_id="a2").begin()


async def test_while_the_fence_fails_the_ending_waits_for_the_end_of_the_replaced_grant(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    _, lease = await stopping(leased_desk, taker, ttl=5.0)
    workspace.out_of_order = True
    async with taking_over(leased_desk, owner, workspace):
        await execute(database_url, NOW)
        await eventually(lambda: len(workspace.claims) > 3)
        now = await taker.read("s1")
        # Longer than the taker's lease, which it renews meanwhile.
        assert (now.live, now.token, now.labels["role"]) == (True, lease.token + 1, "service")
        assert not await is_over(leased_desk)
        await eventually(lambda: is_over(leased_desk))
    turn = await leased_desk.read_turn()
    assert turn.end_reason is EndReason.STOP_DEADLINE
    assert turn.end_time is not None
    assert turn.end_time >= end_of(lease)
    assert not workspace.raised


async def test_once_the_fence_can_be_raised_nothing_waits(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    await stopping(leased_desk, taker, ttl=600.0)
    workspace.out_of_order = True
    async with taking_over(leased_desk, owner, workspace):
        await execute(database_url, NOW)
        await eventually(lambda: len(workspace.claims) > 3)
        assert not await is_over(leased_desk)
        workspace.out_of_order = False
        await eventually(lambda: is_over(leased_desk))
    assert workspace.raised == ["ws_s1"]


async def test_what_a_taker_that_died_has_begun_another_one_ends(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    """It had the lease and raised no fence: the next one must not take that for an ended lease's."""
    _, lease = await stopping(leased_desk, taker, ttl=5.0)
    token = await mark(leased_desk)
    await taker.session("s1", "session/dead", role="service", ttl=2.0, takeover_token=token or 0)
    workspace.out_of_order = True
    async with taking_over(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
    turn = await leased_desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.STOP_DEADLINE)
    assert turn.end_time is not None
    assert turn.end_time >= end_of(lease)


async def test_a_holder_that_does_not_begin_a_turn_is_replaced_and_nothing_is_lost(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    holder, lease = await held(leased_desk, taker, ttl=600.0)
    await execute(
        database_url, "UPDATE session.turns SET dispatch_endpoint = 'hung:1', dispatch_attempts = 3"
    )
    async with taking_over(leased_desk, owner, workspace):
        await eventually(lambda: was_taken(taker, lease))
        await eventually(lambda: is_free(taker))
        await eventually(lambda: is_due(database_url))
    assert workspace.claims == [("ws_s1", lease.token + 1, "")]
    assert (await leased_desk.read_turn()).state is TurnState.ADMITTED
    with pytest.raises(MoorageError) as refusal:
        await holder.begin()
    assert refusal.value.reason_name == "STALE_OWNER"
    answer = await taker.session("s1", "runner/2")
    await leased_desk.holder(shown=answer.grant, attempt_id="a2").begin()
    assert (await leased_desk.read_turn()).token == lease.token + 2


async def was_taken(taker: Taker, lease: lease_pb2.Lease, session_id: str = "s1") -> bool:
    return (await taker.read(session_id)).token > lease.token


async def is_due(database_url: str) -> bool:
    """Whether the turn is to be offered at once."""
    query = "SELECT dispatch_time <= clock_timestamp() FROM session.turns"
    return bool(await fetch_value(database_url, query))


async def test_a_holder_has_its_time_from_when_it_took_the_session(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    await leased_desk.session()
    await leased_desk.turn()
    _, other = await held(leased_desk, taker, "other", ttl=600.0)
    async with taking_over(leased_desk, owner, workspace):
        await eventually(lambda: was_taken(taker, other, "other"))
        await execute(database_url, LATE)
        answer = await taker.session("s1", "runner/1")
        await leased_desk.holder(shown=answer.grant).begin()
    assert (await taker.read("s1")).token == answer.lease.token
    assert (await leased_desk.read_turn()).state is TurnState.RUNNING


async def test_a_holder_has_its_time_from_when_there_is_somebody_to_ask_it(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    """After an outage of the session service the holder of a warm agent was not asked for anything yet."""
    holder, lease = await held(leased_desk, taker, ttl=600.0)
    _, other = await held(leased_desk, taker, "other", ttl=600.0)
    await execute(database_url, f"{LATE} {S1}")
    async with taking_over(leased_desk, owner, workspace, admitted_patience=4.0, interval=0.1):
        await eventually(lambda: is_old(leased_desk, "other", 1.0))
        await holder.begin()
        await eventually(lambda: was_taken(taker, other, "other"))
    assert (await taker.read("s1")).token == lease.token


async def is_old(desk: Desk, session_id: str, age: float) -> bool:
    """Whether the turn is so old."""
    turn = await desk.read_turn(session_id=session_id)
    return turn.create_time + timedelta(seconds=age) < desk.clock.now()


async def test_a_turn_begun_before_the_mark_is_left_alone(leased_desk: Desk, taker: Taker) -> None:
    holder, lease = await held(leased_desk, taker)
    await holder.begin()
    assert not await TakeoverStore(leased_desk.database).mark_waiting(holder.key, "t1", lease.token)
    await holder.finish()
    await leased_desk.turn("t2")
    await replace(holder, turn_id="t2", attempt_id="a2").begin()


async def test_a_service_that_holds_the_session_is_nobody_to_wait_for(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    await leased_desk.session()
    await leased_desk.turn()
    service = await taker.session("s1", "session/1", role="service")
    _, other = await held(leased_desk, taker, "other", ttl=600.0)
    async with taking_over(leased_desk, owner, workspace):
        await execute(database_url, LATE)
        await eventually(lambda: was_taken(taker, other, "other"))
    assert (await taker.read("s1")).token == service.lease.token


async def test_a_holder_that_does_not_let_go_of_a_closing_session_is_replaced(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    await leased_desk.session()
    await leased_desk.session("open")
    parked, opened = await taker.session("s1", "runner/1"), await taker.session("open", "runner/1")
    async with taking_over(leased_desk, owner, workspace):
        await execute(
            database_url,
            f"""
            UPDATE session.sessions SET state = 'CLOSING', operation = 'CLOSE',
                operation_deadline = clock_timestamp(), operation_time = clock_timestamp() {S1}
            """,
        )
        await eventually(lambda: was_taken(taker, parked.lease))
        await eventually(lambda: is_free(taker))
    assert workspace.raised == ["ws_s1"]
    assert (await taker.read("open")).token == opened.lease.token
