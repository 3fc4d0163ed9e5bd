"""CloseSession and StartTurn at once, on two replicas: a turn is admitted and closed, or refused (T1)."""

from __future__ import annotations

import asyncio
from collections import Counter

from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import FailedPrecondition
from tests.session.clients import Client
from tests.session.places import Places, running_session

SESSIONS = 60
ADMITTED, REFUSED = "admitted", "SESSION_CLOSED"


async def test_no_turn_outlives_the_closing_of_its_session(places: Places) -> None:
    outcomes: Counter[str] = Counter()
    async with (
        running_session(places) as one,
        running_session(places) as other,
        open_channel(one.endpoint) as to_one,
        open_channel(other.endpoint) as to_other,
    ):
        client = Client(to_one)
        for number in range(SESSIONS):
            session_id = f"s{number}"
            await client.create(session_id=session_id)
            outcome, closed = await race(client, Client(to_other), session_id, head_start=number % 4)
            outcomes[outcome] += 1
            assert closed.state == session_pb2.SESSION_STATE_CLOSED
            turns = (await client.list_turns(session_id)).turns
            ended = [turn_pb2.END_REASON_CLOSED] if outcome == ADMITTED else []
            assert [turn.end_reason for turn in turns] == ended
    assert outcomes.keys() == {ADMITTED, REFUSED}, outcomes


async def race(
    starter: Client, closer: Client, session_id: str, *, head_start: int
) -> tuple[str, session_pb2.Session]:
    """How the start went, and the closed session; of four races one side begins a little earlier in two."""
    calls = (start(starter, session_id, delay=head_start == 1), close(closer, session_id, head_start == 2))
    return await asyncio.gather(*calls)


async def start(client: Client, session_id: str, *, delay: bool) -> str:
    await _tick(delay)
    try:
        await client.start(session_id)
    except FailedPrecondition as refused:
        return refused.reason_name
    return ADMITTED


async def close(client: Client, session_id: str, delay: bool) -> session_pb2.Session:
    await _tick(delay)
    return await client.close(session_id, wait=True)


async def _tick(delay: bool) -> None:
    for _ in range(5 if delay else 0):
        await asyncio.sleep(0)
