"""The fence (F4): who may write, the same for every fenced RPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.common.v1.grant_pb2 import Grant

from services.common.clock import ManualClock
from services.common.database import Database
from services.common.errors import MoorageError
from services.session.journal.rules import SessionKey
from services.session.turns import EndReason, TurnState
from tests.conditions import eventually
from tests.session.desks import Desk, Holder, OwnKeys

Write = Callable[[Holder], Coroutine[Any, Any, str]]


async def begin(holder: Holder) -> str:
    return await _reason(holder.begin())


async def report(holder: Holder) -> str:
    return await _reason(holder.report(phase=turn_pb2.TURN_PHASE_STARTING_AGENT))


async def append(holder: Holder) -> str:
    (outcome,) = await holder.append(1)
    return outcome if isinstance(outcome, str) else ""


async def finish(holder: Holder) -> str:
    return await _reason(holder.finish())


async def _reason(call: Awaitable[object]) -> str:
    try:
        await call
    except MoorageError as error:
        return error.reason_name
    return ""


every_write = pytest.mark.parametrize("write", [begin, report, append, finish])


@every_write
async def test_a_missing_session_or_turn_is_told_before_any_ownership(desk: Desk, write: Write) -> None:
    nobody = replace(desk.holder(), shown=Grant())
    assert await write(nobody) == "SESSION_NOT_FOUND"
    await desk.session()
    assert await write(nobody) == "TURN_NOT_FOUND"
    assert await write(desk.holder("s1", token=9)) == "TURN_NOT_FOUND"
    assert await desk.token() == 0


@every_write
async def test_a_write_without_a_grant_is_refused(desk: Desk, write: Write) -> None:
    holder = await desk.begun()
    assert await write(replace(holder, shown=Grant())) == "MISSING_OWNER"
    await unchanged(desk)


@every_write
async def test_a_forged_grant_is_refused(desk: Desk, write: Write) -> None:
    holder = await desk.begun()
    higher = holder.claims(token=7)
    stranger = OwnKeys().signer.sign(higher)
    tampered = Grant(
        kid="test_1", payload=desk.keys.signer.sign(higher).payload, signature=holder.grant.signature
    )
    unknown = OwnKeys("test_2").signer.sign(higher)
    garbage = Grant(kid="test_1", payload=b"\x00\x01", signature=b"x" * 64)
    for forged in (stranger, tampered, unknown, garbage):
        assert await write(replace(holder, shown=forged)) == "GRANT_INVALID"
    await unchanged(desk)


@every_write
async def test_a_grant_of_another_resource_is_refused(desk: Desk, write: Write) -> None:
    holder = await desk.begun()
    for resource in ("projects/default/sessions/s2", "projects/other/sessions/s1", "runners/1"):
        foreign = desk.keys.signer.sign(holder.claims(resource=resource, token=7))
        assert await write(replace(holder, shown=foreign)) == "WRONG_RESOURCE"
    await unchanged(desk)


@every_write
async def test_an_expired_grant_is_refused_and_its_token_not_taken(desk: Desk, write: Write) -> None:
    holder = await desk.begun()
    assert await write(replace(holder, token=7, lasts=-1.5)) == "LEASE_EXPIRED"
    await unchanged(desk)


@every_write
async def test_clocks_may_be_a_second_apart(desk: Desk, write: Write) -> None:
    holder = await desk.begun()
    assert await write(replace(holder, lasts=-0.2)) == ""


@every_write
async def test_a_lower_token_is_stale(desk: Desk, write: Write) -> None:
    holder = await desk.begun(token=5)
    assert await write(replace(holder, token=4)) == "STALE_OWNER"
    await unchanged(desk, token=5)


@every_write
async def test_a_stale_owner_is_told_both_tokens(desk: Desk, write: Write) -> None:
    holder = await desk.begun(token=5)
    assert await write(replace(holder, lasts=50.0)) == ""
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, token=4).begin()
    assert refusal.value.metadata == {"resource": holder.key.resource, "token": "4", "highest": "5"}


@every_write
async def test_a_higher_token_ends_what_a_lower_one_began_though_its_own_write_is_refused(
    desk: Desk, write: Write
) -> None:
    await desk.begun(token=3, name="runner/old")
    taker = desk.holder(token=4, name="runner/new", attempt_id="a2")
    assert await write(taker) == "TURN_ENDED"
    assert await desk.token() == 4
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.TAKEN_OVER)
    assert (turn.phase, turn.token, turn.runner_id) == (None, 3, "runner/old")
    user, started, error, ended = await desk.transcript()
    assert (user.kind, started.kind, error.kind, ended.kind) == (
        "user_message",
        "turn_started",
        "error",
        "turn_ended",
    )
    assert (error.record_id, ended.record_id, turn.last_seq) == ("t1/error", "t1/turn_ended", 4)
    told = record_pb2.RecordBody.FromString(error.body).error.error
    assert told.code == "TAKEN_OVER"
    assert dict(told.metadata) == {
        "runner_id": "runner/old",
        "token": "3",
        "phase": "PREPARING_WORKSPACE",
        "prompt_sent": "false",
    }
    assert desk.changed[-1] == SessionKey("default", "s1")
    assert await write(replace(taker, token=3)) == "STALE_OWNER"


@every_write
async def test_a_service_that_takes_the_lease_found_nobody(desk: Desk, write: Write) -> None:
    await desk.begun(token=3)
    assert await write(desk.holder(token=4, name="session/1", role="service")) == "TURN_ENDED"
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.LOST, EndReason.LEASE_LOST)


async def test_a_higher_token_begins_an_admitted_turn(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    await desk.holder(token=3).begin()
    await desk.holder(token=3).finish()
    await desk.turn("t2")
    await desk.holder(token=8, turn_id="t2").begin()
    assert await desk.token() == 8
    assert (await desk.read_turn("t1")).state is TurnState.COMPLETED
    assert (await desk.read_turn("t2")).state is TurnState.RUNNING


@pytest.fixture
async def manual_desk(database: Database) -> AsyncIterator[Desk]:
    async with Desk(database, ManualClock()).serving() as desk:
        yield desk


@every_write
async def test_a_lease_that_ends_while_the_lock_is_waited_for_is_expired(
    manual_desk: Desk, write: Write, database: Database
) -> None:
    holder = await manual_desk.begun()
    clock = manual_desk.clock
    assert isinstance(clock, ManualClock)
    async with database.transaction() as connection:
        await connection.execute("SELECT 1 FROM session.sessions FOR UPDATE")
        writing = asyncio.create_task(write(holder))
        await eventually(lambda: blocked(database))
        await clock.advance(holder.lasts + 1.0)
    assert await writing == "LEASE_EXPIRED"
    await unchanged(manual_desk)


async def test_a_renewed_grant_goes_on_under_its_token(manual_desk: Desk) -> None:
    holder = await manual_desk.begun()
    clock = manual_desk.clock
    assert isinstance(clock, ManualClock)
    old = holder.grant
    await clock.advance(holder.lasts + 2.0)
    assert await append(replace(holder, shown=old)) == "LEASE_EXPIRED"
    assert holder.claims().expire_time - clock.now() == timedelta(seconds=holder.lasts)
    assert await append(holder) == ""


async def unchanged(desk: Desk, token: int = 1) -> None:
    """The turn is as it was begun."""
    turn = await desk.read_turn()
    assert (turn.state, turn.token, turn.last_turn_seq) == (TurnState.RUNNING, token, 0)
    assert await desk.token() == token
    assert [record.kind for record in await desk.transcript()] == ["user_message", "turn_started"]


async def blocked(database: Database) -> bool:
    async with database.connection() as connection:
        waiting: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
    return waiting > 0
