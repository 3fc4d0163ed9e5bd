"""Stops a turn and tells what became of it."""

from __future__ import annotations

import uuid

from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection

_WAIT = 90.0


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
    parts = [f"{outcome} after {seconds:.2f} s"]
    if command.stop_method:
        parts.append(turn_pb2.StopMethod.Name(command.stop_method).removeprefix("STOP_METHOD_"))
    if command.runtime_after:
        runtime = turn_pb2.RuntimeAfter.Name(command.runtime_after).removeprefix("RUNTIME_AFTER_")
        parts.append(f"the agent's process is {'still there' if runtime == 'WARM' else 'gone'}")
    return f"turn {command.turn_id or '(none)'}: {', '.join(parts)}"
