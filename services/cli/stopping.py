"""Stops a turn and tells what became of it."""

from __future__ import annotations

import uuid

from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection

_WAIT = 90.0
_METHODS = {
    turn_pb2.STOP_METHOD_NOT_BEGUN: "it had not begun",
    turn_pb2.STOP_METHOD_PROMPT_WITHDRAWN: "the agent had not been told of it",
    turn_pb2.STOP_METHOD_AGENT_CONFIRMED: "the agent confirmed",
    turn_pb2.STOP_METHOD_AGENT_EXITED: "the agent's process ended by itself",
    turn_pb2.STOP_METHOD_TERMINATED: "the agent's process was ended",
    turn_pb2.STOP_METHOD_KILLED: "the agent's process was killed",
    turn_pb2.STOP_METHOD_RUNTIME_DESTROYED: "the workspace was destroyed under the agent",
}
_OF_LIVING = (turn_pb2.STOP_METHOD_PROMPT_WITHDRAWN, turn_pb2.STOP_METHOD_AGENT_CONFIRMED)
_AFTER = {turn_pb2.RUNTIME_AFTER_WARM: "stays warm", turn_pb2.RUNTIME_AFTER_ENDED: "has ended"}


async def stop(connection: Connection, session_id: str, turn_id: str) -> session_pb2.Command:
    """Order the end of this very turn; the call is repeated with one request id."""
    request = session_pb2.StopTurnRequest(
        session_id=session_id, expected_turn_id=turn_id, request_id=uuid.uuid4().hex
    )
    answer = await connection.sessions.StopTurn(request, metadata=connection.metadata)
    return answer.command


async def settled(connection: Connection, command: session_pb2.Command) -> session_pb2.Command:
    """The command once it is settled, or as it stands after a minute and a half."""
    if command.HasField("settle_time"):
        return command
    request = session_pb2.GetCommandRequest(
        session_id=command.session_id, command_id=command.command_id, wait=True
    )
    answer = await connection.sessions.GetCommand(request, metadata=connection.metadata, timeout=_WAIT)
    return answer.command


def told(command: session_pb2.Command) -> str:
    """What became of a Stop, in words."""
    if not command.HasField("settle_time"):
        return f"turn {command.turn_id} is being stopped ({command.command_id})"
    outcome = session_pb2.CommandOutcome.Name(command.outcome).removeprefix("COMMAND_OUTCOME_")
    seconds = (command.settle_time.ToNanoseconds() - command.create_time.ToNanoseconds()) / 1e9
    told = f"turn {command.turn_id or '(none)'}: {outcome} after {seconds:.2f} s"
    return f"{told}: {how}" if (how := _how(command)) else told


async def held(connection: Connection, session_id: str) -> list[str]:
    """The turns that wait in the queue for a turn to complete, while none is in progress."""
    request = session_pb2.GetSessionRequest(session_id=session_id)
    session = (await connection.sessions.GetSession(request, metadata=connection.metadata)).session
    return [] if session.HasField("turn") else [queued.turn_id for queued in session.queue]


def released(session_id: str, turn_id: str) -> str:
    """How a turn that is held in the queue comes out of it."""
    return (
        "the turn before did not complete; the next completed turn releases it (`moorage run …`), "
        f"`moorage stop {session_id} --turn {turn_id}` withdraws it"
    )


def _how(command: session_pb2.Command) -> str:
    if command.outcome == session_pb2.COMMAND_OUTCOME_WITHDRAWN:
        return "there was no such turn, and for 10 minutes none with this id can be started"
    how = _METHODS.get(command.stop_method, "")
    after = _AFTER.get(command.runtime_after)
    if after is None or command.stop_method not in _OF_LIVING:
        return how
    return f"{how} and {after}"
