"""`moorage session takeover`: an operator ends what the holder of a session does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from moorage.common.v1 import turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import session_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub

from services.cli.app import Context, JsonOption, call
from services.cli.asking import YesOption, confirm
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.operators import OwnerOption, WorkspaceOption, channel_to
from services.cli.output import Output
from services.cli.taking_over import NotTaken, Place, claim_session, fence, taken
from services.cli.transcript import state_name

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub

_BEGUN = (turn_pb2.TURN_STATE_RUNNING, turn_pb2.TURN_STATE_AWAITING_INPUT)

JournalOption = Annotated[
    str,
    typer.Option(
        "--journal-address",
        envvar="MOORAGE_JOURNAL_ADDRESS",
        metavar="HOST:PORT",
        help="The session service's port for runners. Default: that of the `up` around this directory.",
    ),
]


def takeover(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    token: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Only from the holder with this token.")
    ] = 0,
    yes: YesOption = False,
    owner: OwnerOption = "",
    workspace: WorkspaceOption = "",
    journal: JournalOption = "",
    _json: JsonOption = False,
) -> None:
    """Take a session from the runner that drives it; a turn that it has begun is LOST."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        wanted = session_id or (await find_session(connection, Path.cwd())).session_id
        async with (
            channel_to("owner", owner) as leases,
            channel_to("workspace", workspace) as instance,
            channel_to("journal", journal) as written,
        ):
            stub = LeaseServiceStub(leases)
            driver = await _driver(stub, f"projects/{options.project}/sessions/{wanted}", token)
            session = await _session(connection, wanted)
            await confirm(options.output, _meant(session, driver), yes=yes)
            place = Place(instance, options.project, session.workspace.workspace_id)
            async with taken(stub, driver) as held:
                # Without certainty that nothing lives the lease is left to end by itself.
                await fence(place, held, options.output)
                try:
                    turn = (await _session(connection, wanted)).turn
                    await claim_session(JournalServiceStub(written), held, options.project, wanted)
                finally:
                    await held.release()
        lost = turn.state in _BEGUN and turn.metadata.token == driver.token
        _tell(options.output, driver, await _turn(connection, wanted, turn.turn_id) if lost else None)
        return Exit.COMPLETED

    call(options, work, named=True)


async def _driver(owner: LeaseServiceAsyncStub, resource: str, token: int) -> lease_pb2.Lease:
    """The lease of the runner that is to be replaced. Raises NotTaken."""
    lease = (await owner.GetLease(lease_pb2.GetLeaseRequest(resource=resource))).lease
    if not lease.live or lease.labels.get("role") != "runner":
        raise NotTaken(f"no runner drives {resource}")
    if token and lease.token != token:
        raise NotTaken(f"{resource} is driven with token {lease.token} by {lease.holder}")
    return lease


def _meant(session: session_pb2.Session, driver: lease_pb2.Lease) -> str:
    turn = session.turn
    lost = f"; its turn {turn.turn_id} will be LOST" if turn.state in _BEGUN else ""
    return f"take {session.session_id} from {driver.holder}{lost}?"


async def _session(connection: Connection, session_id: str) -> session_pb2.Session:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    return (await connection.sessions.GetSession(request, metadata=connection.metadata)).session


async def _turn(connection: Connection, session_id: str, turn_id: str) -> session_pb2.Turn:
    request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
    return (await connection.sessions.GetTurn(request, metadata=connection.metadata)).turn


def _tell(output: Output, lease: lease_pb2.Lease, turn: session_pb2.Turn | None) -> None:
    """Whose token is good no more, and which turn it had begun."""
    if output.as_json:
        replaced = {"resource": lease.resource, "holder": lease.holder, "token": lease.token}
        output.document({"lease": replaced, "turn": turn.turn_id if turn else ""})
        return
    output.line(f"token {lease.token} of {lease.holder} is good no more")
    if turn is not None:
        output.line(f"turn {turn.turn_id} is {state_name(turn.state)}")
