"""`moorage session delete`: what cannot be undone is asked about first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import grpc
import typer
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.asking import YesOption, confirm
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.output import Output
from services.cli.refusals import Refusal
from services.common.validation import mint_id

_TIMEOUT = 120.0
_STAYS = session_pb2.RETENTION_POLICY_PINNED


def delete(
    context: typer.Context,
    session_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Default: that of this directory.")
    ] = None,
    yes: YesOption = False,
    wait: Annotated[bool, typer.Option(help="Wait until nothing is left.")] = True,
    _json: JsonOption = False,
) -> None:
    """Close a session and remove it for good, with its transcript and the workspace made for it."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        worst = Exit.COMPLETED
        for session_id in session_ids or [(await find_session(connection, Path.cwd())).session_id]:
            try:
                worst = max(worst, await _delete(connection, options.output, session_id, yes=yes, wait=wait))
            except grpc.aio.AioRpcError as error:
                refusal = Refusal(error)
                options.output.error(refusal.line(), refusal.hint, refusal.document())
                worst = max(worst, refusal.exit)
        return worst

    call(options, work)


async def _delete(connection: Connection, output: Output, session_id: str, *, yes: bool, wait: bool) -> Exit:
    found = await connection.sessions.GetSession(
        session_pb2.GetSessionRequest(session_id=session_id), metadata=connection.metadata
    )
    await confirm(output, f"delete {session_id} {_contents(found.session)} for good?", yes=yes)
    request = session_pb2.DeleteSessionRequest(session_id=session_id, wait=wait, request_id=mint_id("delete"))
    answer = await connection.sessions.DeleteSession(request, metadata=connection.metadata, timeout=_TIMEOUT)
    gone = not answer.HasField("session")
    _tell(output, found.session, answer, gone=gone)
    if wait and not gone:
        output.error(f"{session_id} is not deleted yet", "`moorage session get` tells why")
        return Exit.FAILED
    return Exit.COMPLETED


def _contents(session: session_pb2.Session) -> str:
    things = [f"with its {session.head_seq} records"]
    if session.HasField("turn"):
        things.append(f"and turn {session.turn.turn_id}, which is in progress,")
    return " ".join(things)


def _tell(
    output: Output, before: session_pb2.Session, answer: session_pb2.DeleteSessionResponse, *, gone: bool
) -> None:
    if output.as_json:
        output.document({"sessionId": before.session_id, "deleted": gone})
    elif gone:
        output.line(f"{before.session_id} is deleted")
    else:
        waits = answer.session.operation.waiting_reason
        output.line(f"{before.session_id} is being deleted: {waits}".rstrip(": "))
    if before.retention == _STAYS:
        output.hint(f"its workspace {before.workspace.workspace_id} is pinned and stays")
