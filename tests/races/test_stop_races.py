"""Stops that meet what they stop, through two session processes with a runner and its agent (S4, S10).

Each race is run for RACES rounds (30) with offsets at random, tells how often each side won, and
fails when one of them hardly ever did. SEED repeats the offsets of an earlier run.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import (
    INTERACTION_OUTCOME_ANSWERED as ANSWERED,
)
from moorage.common.v1.record_pb2 import (
    INTERACTION_OUTCOME_CANCELLED as CANCELLED,
)
from moorage.common.v1.record_pb2 import (
    INTERACTION_OUTCOME_EXPIRED as EXPIRED,
)
from moorage.session.v1 import session_pb2

from services.common.errors import MoorageError
from tests.databases import cloned, fetch
from tests.races.arena import INTERACTION_TIMEOUT, ROUNDS, Arena, Race, Round, arena
from tests.races.lanes import Lane
from tests.races.meeting import reason
from tests.races.offsets import at, meet

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60 + 2 * ROUNDS)]

COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
WARM = turn_pb2.RUNTIME_AFTER_WARM
NOT_RUNNING = session_pb2.COMMAND_OUTCOME_NOT_RUNNING
ASK = turn_pb2.APPROVAL_POLICY_ASK
CONFIRMED = turn_pb2.STOP_METHOD_AGENT_CONFIRMED
# The agent's turn goes on for so long after its first word.
A_WHILE = 0.1
WORK = f"say working\nsleep {A_WHILE}"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def processes(
    postgres_url: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Arena]:
    """For all races."""
    directory = tmp_path_factory.mktemp("arena")
    async with cloned(postgres_url, template_database) as url, arena(url, directory) as running:
        yield running


async def outcome(lane: Lane, turn_id: str, command: session_pb2.Command) -> session_pb2.Turn:
    """The ended turn; the Stop of it was settled as the turn's end wants."""
    turn = await lane.over(turn_id)
    settled = await lane.settled(command)
    assert settled.turn_id == turn_id
    if turn.state == STOPPED:
        assert turn.end_reason == turn_pb2.END_REASON_USER_STOP
        assert settled.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
        assert (settled.stop_method, settled.runtime_after) == (turn.stop_method, turn.runtime_after)
    else:
        assert (turn.state, turn.end_reason) == (COMPLETED, turn_pb2.END_REASON_AGENT_ENDED)
        assert settled.outcome == NOT_RUNNING
    return turn


async def never_was(lane: Lane, turn_id: str) -> None:
    """There is no such turn, and nobody was told of it."""
    for client, watcher in zip(lane.clients, lane.watchers, strict=True):
        assert await reason(client.get_turn(lane.session_id, turn_id)) == "TURN_NOT_FOUND"
        assert watcher.count(turn_id, "user_message") == 0


async def stop_and_finish(now: Round) -> str:
    lane, turn_id = now.lane, now.turn_id
    await lane.start(turn_id, WORK)
    await lane.saw(turn_id, "agent_message")
    command = await at(time.monotonic() + now.offset, lane.stop(turn_id))
    turn = await outcome(lane, turn_id, command)
    assert turn.runtime_after == WARM
    return "finish" if turn.state == COMPLETED else "Stop"


async def stop_and_next_turn(now: Round) -> str:
    """The turn ends by itself; somebody who saw that starts the next one."""
    lane, turn_id = now.lane, now.turn_id
    await lane.start(turn_id, WORK)
    await lane.saw(turn_id, "agent_message")

    async def follow() -> None:
        await lane.saw(turn_id, "turn_ended")
        await lane.start(now.next_id, "say next")

    refused, _ = await meet(reason(lane.stop(turn_id)), follow(), -now.offset)
    assert refused in ("", "TURN_MISMATCH")
    turn, following = await lane.over(turn_id), await lane.over(now.next_id)
    assert following.state == COMPLETED
    assert turn.state == COMPLETED or not refused
    return "next turn" if refused else "Stop"


async def stop_and_answer(now: Round) -> str:
    lane, turn_id = now.lane, now.turn_id
    ran = now.arena.root / f"{lane.session_id}-{turn_id}"
    await lane.start(turn_id, f"ask to run touch {ran}")
    opened = await lane.saw(turn_id, "interaction_opened")
    asked = opened.body.interaction_opened.interaction_id
    command, refused = await meet(lane.stop(turn_id), reason(lane.answer(asked, "once")), now.offset)
    assert refused in ("", "INTERACTION_NOT_PENDING")
    turn = await outcome(lane, turn_id, command)
    closed = (await lane.saw(turn_id, "interaction_closed")).body.interaction_closed
    if refused:
        assert (turn.state, turn.stop_method) == (STOPPED, CONFIRMED)
        assert (closed.outcome, closed.settled_by) == (CANCELLED, command.command_id)
        assert not ran.exists()
    else:
        assert (closed.outcome, closed.option_id) == (ANSWERED, "once")
    return "Stop" if refused else "answer"


async def stop_and_stop(now: Round) -> str:
    """Who was first is told by the trace that the command goes on in."""
    lane, turn_id = now.lane, now.turn_id
    await lane.start(turn_id, "sleep 600")
    await lane.saw(turn_id, "agent_message")
    traces = [f"{number:032x}" for number in (2 * now.number + 1, 2 * now.number + 2)]
    calls = [
        client.traced(f"00-{trace}-00f067aa0ba902b7-01").stop(lane.session_id, turn_id, request_id=trace)
        for client, trace in zip(lane.clients, traces, strict=True)
    ]
    await meet(calls[0], calls[1], now.offset)
    turn = await lane.over(turn_id)
    assert (turn.state, turn.stop_method, turn.runtime_after) == (STOPPED, CONFIRMED, WARM)
    first, *late = await fetch(
        now.arena.database_url,
        """
        SELECT traceparent, state, outcome FROM session.commands
        WHERE session_id = $1 AND turn_id = $2 ORDER BY create_time
        """,
        lane.session_id,
        turn_id,
    )
    assert (first["state"], first["outcome"]) == ("APPLIED", "STOPPED")
    # One that came when all was over.
    assert [(row["state"], row["outcome"]) for row in late] in ([], [("OBSOLETE", "NOT_RUNNING")])
    return "one replica" if first["traceparent"].split("-")[1] == traces[0] else "the other"


async def stop_and_start(now: Round) -> str:
    lane, turn_id = now.lane, now.turn_id
    command, refused = await meet(lane.stop(turn_id), reason(lane.start(turn_id, "sleep 600")), now.offset)
    assert refused in ("", "TURN_WITHDRAWN")
    if refused:
        assert (await lane.settled(command)).outcome == session_pb2.COMMAND_OUTCOME_WITHDRAWN
        await never_was(lane, turn_id)
        return "Stop"
    turn = await outcome(lane, turn_id, command)
    assert turn.state == STOPPED
    return "start"


async def stop_and_refused(now: Round) -> str:
    lane, turn_id, next_id = now.lane, now.turn_id, now.next_id
    await lane.start(turn_id, "sleep 600")
    await lane.saw(turn_id, "agent_message")
    command, refused = await meet(lane.stop(turn_id), reason(lane.start(next_id, "say next")), now.offset)
    assert refused in ("", "TURN_IN_PROGRESS")
    turn = await outcome(lane, turn_id, command)
    assert (turn.state, turn.stop_method, turn.runtime_after) == (STOPPED, CONFIRMED, WARM)
    if refused:
        await never_was(lane, next_id)
        return "refused"
    following = await lane.over(next_id)
    assert (following.state, following.metadata.resume_kind) == (COMPLETED, turn_pb2.RESUME_KIND_WARM)
    return "Stop"


async def interrupt_and_stop(now: Round) -> str:
    """A Stop of the user after it holds what interrupted, one before it does not (T2)."""
    lane, turn_id, urgent = now.lane, now.turn_id, f"urgent-{now.turn_id}"
    await lane.start(turn_id, "sleep 600")
    await lane.saw(turn_id, "agent_message")
    interrupting = lane.start(urgent, "say urgent", if_busy=session_pb2.IF_BUSY_INTERRUPT)
    _, command = await meet(interrupting, stop_unless_over(lane, turn_id), now.offset)
    turn = await lane.over(turn_id)
    assert (turn.state, turn.stop_method, turn.runtime_after) == (STOPPED, CONFIRMED, WARM)
    is_first = turn.end_reason == turn_pb2.END_REASON_INTERRUPTED
    assert is_first or turn.end_reason == turn_pb2.END_REASON_USER_STOP
    settled = await lane.settled(command) if command else None
    if is_first and settled and settled.outcome == session_pb2.COMMAND_OUTCOME_STOPPED:
        # It shared the command of the turn that interrupted, and took its right to go first.
        assert await is_queued(lane, urgent)
        await lane.stop(urgent)
        assert (await lane.over(urgent)).stop_method == turn_pb2.STOP_METHOD_NOT_BEGUN
    else:
        # The Stop came before the turn that interrupted, or when the other one was over.
        assert (await lane.over(urgent)).state == COMPLETED
    return "INTERRUPT" if is_first else "Stop"


async def enqueue_and_finish(now: Round) -> str:
    """Whoever is first: what was queued runs, since the turn before has completed (T2)."""
    lane, turn_id, next_id = now.lane, now.turn_id, now.next_id
    await lane.start(turn_id, WORK)
    await lane.saw(turn_id, "agent_message")
    queued = lane.start(next_id, "say next", if_busy=session_pb2.IF_BUSY_ENQUEUE)
    await at(time.monotonic() + now.offset, queued)
    turn, following = await lane.over(turn_id), await lane.over(next_id)
    assert (turn.state, following.state) == (COMPLETED, COMPLETED)
    assert following.metadata.previous_turn_id == turn_id
    has_waited = following.create_time.ToNanoseconds() < turn.end_time.ToNanoseconds()
    return "ENQUEUE" if has_waited else "finish"


async def stop_and_finish_with_queue(now: Round) -> str:
    """What waits behind the turn is never hit: admitted by the one, held by the other (T2)."""
    lane, turn_id, later = now.lane, now.turn_id, f"later-{now.turn_id}"
    await lane.start(turn_id, WORK)
    await lane.saw(turn_id, "agent_message")
    moment = time.monotonic() + now.offset
    await lane.start(later, "say later", if_busy=session_pb2.IF_BUSY_ENQUEUE)
    refused = await at(moment, reason(lane.stop(turn_id)))
    assert refused in ("", "TURN_MISMATCH")
    turn = await lane.over(turn_id)
    if turn.state == STOPPED:
        assert await is_queued(lane, later)
        await lane.start(now.next_id, "say go on")
    assert (await lane.over(later)).state == COMPLETED
    return "finish" if turn.state == COMPLETED else "Stop"


async def stop_unless_over(lane: Lane, turn_id: str) -> session_pb2.Command | None:
    """The command of a Stop; None when another turn is in progress already."""
    try:
        return await lane.stop(turn_id)
    except MoorageError as error:
        if error.reason_name != "TURN_MISMATCH":
            raise
        return None


async def is_queued(lane: Lane, turn_id: str) -> bool:
    """Whether it waits; both replicas say the same."""
    queues = [(await client.get(lane.session_id)).queue for client in lane.clients]
    assert queues[0] == queues[1]
    return [turn.turn_id for turn in queues[0]] == [turn_id]


async def answer_and_expiry(now: Round) -> str:
    """Both replicas look for questions that are overdue."""
    lane, turn_id = now.lane, now.turn_id
    ran = now.arena.root / f"{lane.session_id}-{turn_id}"
    await lane.start(turn_id, f"ask to run touch {ran}")
    opened = await lane.saw(turn_id, "interaction_opened")
    asked = opened.body.interaction_opened.interaction_id
    refused = await at(time.monotonic() + now.offset, reason(lane.answer(asked, "once")))
    assert refused in ("", "INTERACTION_NOT_PENDING")
    assert (await lane.over(turn_id)).state == COMPLETED
    closed = (await lane.saw(turn_id, "interaction_closed")).body.interaction_closed
    assert closed.outcome == (EXPIRED if refused else ANSWERED)
    assert ran.exists() is not bool(refused)
    return "expiry" if refused else "answer"


@pytest.mark.parametrize(
    "race",
    [
        Race("Stop x finish", ("finish", "Stop"), stop_and_finish, width=0.04, centre=A_WHILE, least=0.0),
        Race("Stop x Stop", ("one replica", "the other"), stop_and_stop, width=0.01),
        Race("Stop x StartTurn", ("Stop", "start"), stop_and_start),
        Race(
            "Stop x next turn",
            ("next turn", "Stop"),
            stop_and_next_turn,
            centre=A_WHILE,
            width=0.06,
            least=0.0,
        ),
        Race(
            "ENQUEUE x finish",
            ("finish", "ENQUEUE"),
            enqueue_and_finish,
            width=0.04,
            centre=A_WHILE,
            least=0.0,
        ),
        Race(
            "Stop x finish with queue",
            ("finish", "Stop"),
            stop_and_finish_with_queue,
            width=0.04,
            centre=A_WHILE,
            least=0.0,
        ),
        Race("INTERRUPT x Stop", ("INTERRUPT", "Stop"), interrupt_and_stop),
        Race("Stop x refused StartTurn", ("Stop", "refused"), stop_and_refused, centre=A_WHILE, width=0.06),
    ],
    ids=lambda race: race.name,
)
async def test_turns(processes: Arena, race: Race, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        await processes.run(race)


@pytest.mark.parametrize(
    "race",
    [
        Race("Stop x answer", ("Stop", "answer"), stop_and_answer),
        Race(
            "answer x expiry",
            ("expiry", "answer"),
            answer_and_expiry,
            width=0.04,
            centre=INTERACTION_TIMEOUT,
            least=0.0,
            lanes=12,
        ),
    ],
    ids=lambda race: race.name,
)
async def test_questions(processes: Arena, race: Race, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        await processes.run(race, approval_policy=ASK)
