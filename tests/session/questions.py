"""Questions as tests answer, age and read them, at a desk."""

from __future__ import annotations

from moorage.common.v1 import record_pb2

from services.session.interactions import Answer, Interaction
from services.session.journal.rules import SessionKey
from services.session.requests import RequestKey
from tests.session.desks import Desk


async def answer(
    desk: Desk, interaction_id: str, option_id: str, session_id: str = "s1", *, request_id: str = ""
) -> Interaction:
    """Answer a question of the project `default`."""
    key = RequestKey("default", session_id, "AnswerInteraction", request_id, option_id.encode())
    return await desk.interactions.answer(Answer("default", session_id, interaction_id, option_id), key)


async def read(desk: Desk, interaction_id: str = "q1", session_id: str = "s1") -> Interaction:
    """A question as it is stored."""
    return await desk.interactions.get(SessionKey("default", session_id), interaction_id)


async def run_out(desk: Desk, interaction_id: str, session_id: str = "s1") -> None:
    """Let the time of a question be up."""
    async with desk.database.connection() as connection:
        await connection.execute(
            """
            UPDATE session.interactions SET expire_time = clock_timestamp()
            WHERE session_id = $1 AND interaction_id = $2
            """,
            session_id,
            interaction_id,
        )


async def undelivered(desk: Desk) -> list[str]:
    """The questions whose decision a runner has yet to be told."""
    async with desk.database.connection() as connection:
        rows = await connection.fetch(
            """
            SELECT interaction_id FROM session.interactions
            WHERE delivery_time IS NOT NULL
            ORDER BY session_id, seq
            """
        )
    return [row["interaction_id"] for row in rows]


async def closings(desk: Desk, session_id: str = "s1") -> list[record_pb2.InteractionClosed]:
    """What the transcript tells of decisions; each has one record, under its own name."""
    found = [record for record in await desk.transcript(session_id) if record.kind == "interaction_closed"]
    closed = [record_pb2.RecordBody.FromString(record.body).interaction_closed for record in found]
    names = [f"{each.interaction_id}/interaction_closed" for each in closed]
    assert [record.record_id for record in found] == names
    assert len(set(names)) == len(names)
    return closed


async def check_told(desk: Desk, session_id: str = "s1") -> None:
    """Rows, records and the turns' lists of pending questions say the same."""
    async with desk.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT * FROM session.interactions WHERE session_id = $1 ORDER BY seq", session_id
        )
        turns = await connection.fetch("SELECT * FROM session.turns WHERE session_id = $1", session_id)
    waiting = [row for row in rows if row["state"] == "PENDING"]
    for turn in turns:
        own = [row["interaction_id"] for row in waiting if row["turn_id"] == turn["turn_id"]]
        assert turn["pending_interaction_ids"] == own
        assert bool(own) == (turn["state"] == "AWAITING_INPUT")
    told = {
        closed.interaction_id: (
            record_pb2.InteractionOutcome.Name(closed.outcome).removeprefix("INTERACTION_OUTCOME_"),
            closed.option_id,
            closed.settled_by,
        )
        for closed in await closings(desk, session_id)
    }
    assert told == {
        row["interaction_id"]: (row["state"], row["option_id"], row["settled_by"])
        for row in rows
        if row["state"] != "PENDING"
    }
