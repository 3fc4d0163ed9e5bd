"""`moorage session takeover`: an operator ends what the holder of a session does."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.commands_operate import OwnerOption
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.operators import channel_to
from services.cli.transcript import state_name

# The shortest that there is: it is left to end, so that whoever comes next clears up first.
_TTL = 2
_PATIENCE = 60.0
_LOOK = 0.2
_BEGUN = (turn_pb2.TURN_STATE_RUNNING, turn_pb2.TURN_STATE_AWAITING_INPUT)


class NotTaken(CommandFailed):
    """There is nothing to take over, or it is somebody else's by now."""


def takeover(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    token: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Only from the holder with this token.")
    ] = 0,
    owner: OwnerOption = "",
    _json: JsonOption = False,
) -> None:
    """Take a session from the runner that drives it; a turn that it has begun is LOST."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        wanted = session_id or (await find_session(connection, Path.cwd())).session_id
        lease = await _take(owner, f"projects/{options.project}/sessions/{wanted}", token)
        turn = await _ended(connection, wanted, lease.token)
        if options.output.as_json:
            options.output.document({"lease": _document(lease), "turn": turn.turn_id if turn else ""})
        else:
            options.output.line(f"token {lease.token} of {lease.holder} is good no more")
            if turn is not None:
                options.output.line(f"turn {turn.turn_id} is {state_name(turn.state)}")
        return Exit.COMPLETED

    call(options, work)


async def _take(owner: str, resource: str, token: int) -> lease_pb2.Lease:
    """Replace the holder; the lease that it had."""
    async with channel_to("owner", owner) as channel:
        stub = LeaseServiceStub(channel)
        lease = (await stub.GetLease(lease_pb2.GetLeaseRequest(resource=resource))).lease
        if not lease.live or lease.labels.get("role") != "runner":
            raise NotTaken(f"no runner drives {resource}")
        if token and lease.token != token:
            raise NotTaken(f"{resource} is driven with token {lease.token} by {lease.holder}")
        request = lease_pb2.AcquireLeaseRequest(
            resource=resource,
            holder=f"operator/{secrets.token_hex(8)}",
            labels={"role": "operator"},
            request_id=secrets.token_hex(8),
            takeover_token=lease.token,
        )
        request.ttl.FromSeconds(_TTL)
        await stub.AcquireLease(request)
    return lease


async def _ended(connection: Connection, session_id: str, token: int) -> session_pb2.Turn | None:
    """The turn that was begun with the token, once it has ended; None when there was none."""
    turn = (await _session(connection, session_id)).turn
    if turn.state not in _BEGUN or turn.metadata.token != token:
        return None
    request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn.turn_id)
    try:
        async with asyncio.timeout(_PATIENCE):
            while not turn.HasField("end_time"):
                await asyncio.sleep(_LOOK)
                answer = await connection.sessions.GetTurn(request, metadata=connection.metadata)
                turn = answer.turn
    except TimeoutError:
        raise NotTaken(
            f"turn {turn.turn_id} has not ended within {_PATIENCE:g} s",
            hint="`moorage session get` tells what is going on",
        ) from None
    return turn


async def _session(connection: Connection, session_id: str) -> session_pb2.Session:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    return (await connection.sessions.GetSession(request, metadata=connection.metadata)).session


def _document(lease: lease_pb2.Lease) -> dict[str, object]:
    return {"resource": lease.resource, "holder": lease.holder, "token": lease.token}
