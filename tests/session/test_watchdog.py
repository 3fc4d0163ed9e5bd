"""The watchdog (F8), with a real owner: ends turns whose holder is gone, and no others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
from moorage.common.v1 import record_pb2
from moorage.owner.v1 import lease_pb2

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.errors import MoorageError
from services.fencing.loop import LeaseLoop
from services.session.clients import Leases
from services.session.recovery.watchdog import Watchdog
from services.session.store.dispatch import DispatchStore
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.databases import execute, fetch_value
from tests.session.desks import Desk, Holder
from tests.session.fake_workspaces import FakeWorkspace
from tests.session.leasing import Taker
from tests.session.places import NOWHERE
from tests.session.stops import read, stop
from tests.session.takings import at_work, end_of, held, is_over, taking

TTL = 2.0


@contextlib.asynccontextmanager
async def watching(
    desk: Desk,
    owner: grpc.aio.Channel,
    workspace: FakeWorkspace,
    *,
    leases: grpc.aio.Channel | None = None,
    fence_timeout: float = 1.0,
) -> AsyncIterator[tuple[Watchdog, LeaseLoop]]:
    """A replica's watchdog at work; `leases` is where it reads them."""
    async with taking(desk, owner, workspace, fence_timeout=fence_timeout) as (taker, loop):
        watchdog = Watchdog(
            DispatchStore(desk.database), Leases(leases or owner), taker, SystemClock(), interval=2.0
        )
        async with at_work(watchdog.run()):
            yield watchdog, loop


async def begun(
    desk: Desk, taker: Taker, session_id: str = "s1", *, ttl: float = TTL
) -> tuple[Holder, lease_pb2.Lease]:
    """A turn begun under a lease that nobody renews."""
    holder, lease = await held(desk, taker, session_id, ttl=ttl)
    await holder.begin()
    return holder, lease


async def test_a_turn_without_a_live_holder_is_lost_soon_after_its_lease(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    async with watching(leased_desk, owner, workspace) as (_, loop):
        holder, lease = await begun(leased_desk, taker)
        await holder.append(1)
        await eventually(lambda: is_over(leased_desk))
        turn = await leased_desk.read_turn()
        assert (turn.state, turn.end_reason, turn.token) == (
            TurnState.LOST,
            EndReason.LEASE_LOST,
            lease.token,
        )
        assert turn.end_time is not None
        late = turn.end_time - end_of(lease)
        assert timedelta(0) <= late < timedelta(seconds=3)
        error, ended = (await leased_desk.transcript())[-2:]
        assert (error.record_id, ended.record_id) == ("t1/error", "t1/turn_ended")
        told = record_pb2.RecordBody.FromString(error.body).error.error
        assert (told.code, told.metadata["runner_id"]) == ("LEASE_LOST", "runner/1")
        stored = await leased_desk.token()
        assert stored > lease.token
        await eventually(lambda: not loop.leases)
        after = await taker.read("s1")
        assert (after.live, after.token, after.labels["role"]) == (False, stored, "service")
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, attempt_id="a1").finish(last_turn_seq=1)
    assert refusal.value.reason_name in {"STALE_OWNER", "LEASE_EXPIRED"}
    await leased_desk.turn("t2")
    again = await taker.session("s1", "runner/2")
    await leased_desk.holder(shown=again.grant, turn_id="t2").begin()


async def test_a_live_holder_keeps_its_turn(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    holder, lease = await begun(leased_desk, taker, ttl=600.0)
    await begun(leased_desk, taker, "gone")
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk, "gone"))
    assert await leased_desk.token() == lease.token
    await holder.finish()


async def test_whoever_holds_the_lease_by_now_is_left_alone(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    _, lease = await begun(leased_desk, taker)
    await eventually(lambda: is_free(taker))
    answer = await taker.session("s1", "runner/2")
    await begun(leased_desk, taker, "gone")
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk, "gone"))
    assert (await leased_desk.read_turn()).state is TurnState.RUNNING
    assert await leased_desk.token() == lease.token
    # Its first write ends the turn.
    with pytest.raises(MoorageError):
        await leased_desk.holder(shown=answer.grant, attempt_id="a2").begin()
    assert (await leased_desk.read_turn()).end_reason is EndReason.TAKEN_OVER


async def is_free(taker: Taker) -> bool:
    return not (await taker.read("s1")).live


async def test_several_watchdogs_end_a_turn_once(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    for number in range(10):
        await begun(leased_desk, taker, f"s{number}")
    async with (
        watching(leased_desk, owner, workspace),
        watching(leased_desk, owner, workspace),
        watching(leased_desk, owner, workspace),
    ):
        for number in range(10):
            await eventually(lambda number=number: is_over(leased_desk, f"s{number}"))  # type: ignore[misc]
    for number in range(10):
        kinds = [record.kind for record in await leased_desk.transcript(f"s{number}")]
        assert kinds == ["user_message", "turn_started", "error", "turn_ended"]


async def test_an_admitted_turn_is_none_of_its_business(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    await leased_desk.session("waiting")
    await leased_desk.turn("t1", "waiting")
    await begun(leased_desk, taker)
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
    assert (await leased_desk.read_turn(session_id="waiting")).state is TurnState.ADMITTED


async def test_while_owner_is_away_nothing_is_lost(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    await begun(leased_desk, taker)
    async with open_channel(NOWHERE) as nowhere:
        async with watching(leased_desk, owner, workspace, leases=nowhere):
            await eventually(lambda: is_free(taker))
            assert not await is_over(leased_desk)
        async with watching(leased_desk, nowhere, workspace, leases=owner) as (watchdog, _):
            await eventually(lambda: watchdog.work.failures > 0)
            assert not await is_over(leased_desk)
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))


async def test_what_could_not_be_written_is_tried_again_and_the_lease_given_back(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    await begun(leased_desk, taker)
    first = await taker.read("s1")
    await execute(database_url, "ALTER TABLE session.records ADD CONSTRAINT no_end CHECK (kind <> 'error')")
    async with watching(leased_desk, owner, workspace):

        async def tried_twice() -> bool:
            lease = await taker.read("s1")
            return lease.token >= first.token + 2 and not lease.live

        await eventually(tried_twice, within=15.0)
        assert await leased_desk.token() == first.token
        await execute(database_url, "ALTER TABLE session.records DROP CONSTRAINT no_end")
        await eventually(lambda: is_over(leased_desk))


async def test_the_workspace_is_fenced_before_the_turn_has_ended(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    _, lease = await begun(leased_desk, taker)
    workspace.out_of_order = True
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: bool(workspace.claims))
        assert not await is_over(leased_desk)
        workspace.out_of_order = False
        await eventually(lambda: is_over(leased_desk))
    assert workspace.raised == ["ws_s1"]
    assert workspace.claims[-1] == ("ws_s1", lease.token + 1, "")


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_workspace_that_cannot_be_asked_does_not_keep_a_turn_whose_lease_has_ended(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, hangs: bool
) -> None:
    workspace.hangs, workspace.out_of_order = hangs, True
    await begun(leased_desk, taker)
    await begun(leased_desk, taker, "s2")
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
        await eventually(lambda: is_over(leased_desk, "s2"))
    assert not workspace.raised
    assert (await leased_desk.read_turn()).end_reason is EndReason.LEASE_LOST


async def test_many_turns_of_a_dead_workspace_do_not_hold_up_those_of_another(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    sessions = [f"dead{number}" for number in range(40)]
    workspace.dead = {f"ws_{session_id}" for session_id in sessions}
    for session_id in sessions:
        await begun(leased_desk, taker, session_id)
    async with watching(leased_desk, owner, workspace, fence_timeout=30.0):
        await eventually(lambda: workspace.dead == {name for name, *_ in workspace.claims})
        _, lease = await begun(leased_desk, taker)
        await eventually(lambda: is_over(leased_desk))
        assert not await is_over(leased_desk, sessions[0])
    turn = await leased_desk.read_turn()
    assert turn.end_time is not None
    assert turn.end_time - end_of(lease) < timedelta(seconds=3)
    assert workspace.raised == ["ws_s1"]


async def test_a_turn_whose_session_an_operator_took_says_so(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace
) -> None:
    _, lease = await begun(leased_desk, taker, ttl=3.0)
    taken = await taker.session("s1", "operator/1", role="operator", ttl=TTL, takeover_token=lease.token)
    assert taken.lease.token == lease.token + 1
    workspace.out_of_order = True
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
    turn = await leased_desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.TAKEN_OVER)
    # Unfenced, as long as the grant that was replaced may be good.
    assert turn.end_time is not None
    assert turn.end_time >= end_of(lease)


async def test_what_waited_for_the_turn_is_settled_with_it(
    leased_desk: Desk, owner: grpc.aio.Channel, taker: Taker, workspace: FakeWorkspace, database_url: str
) -> None:
    holder, _ = await begun(leased_desk, taker)
    await holder.ask(1)
    await begun(leased_desk, taker, "s2")
    command = await stop(leased_desk, "t1", "s2")
    async with watching(leased_desk, owner, workspace):
        await eventually(lambda: is_over(leased_desk))
        await eventually(lambda: is_over(leased_desk, "s2"))
    query = "SELECT state || ' ' || settled_by FROM session.interactions"
    assert await fetch_value(database_url, query) == "CANCELLED LEASE_LOST"
    kinds = [record.kind for record in await leased_desk.transcript()]
    assert kinds[-3:] == ["error", "interaction_closed", "turn_ended"]
    assert (await read(leased_desk, command.command_id, "s2")).outcome == "LOST"
