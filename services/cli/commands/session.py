"""`moorage session …`: make, list and look at sessions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import grpc
import typer
from moorage.session.v1 import session_pb2

from services.cli import facts
from services.cli.app import Context, JsonOption, call
from services.cli.asking import YesOption, confirm
from services.cli.commands import creation, deletion, updating
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.options import labels_of
from services.cli.output import Output
from services.cli.questions import pending
from services.cli.refusals import Refusal

_COLUMNS = ("session", "created", "records", "turn", "works in")
_PAGE = 1000
_CLOSE_TIMEOUT = 120.0


app = typer.Typer(no_args_is_help=True, help="Sessions.")
app.command("create")(creation.create)
app.command("delete")(deletion.delete)
app.command("update")(updating.update)


@app.command("list")
def list_sessions(
    context: typer.Context,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with it.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="At most so many.")] = 50,
    _json: JsonOption = False,
) -> None:
    """List sessions, newest first."""
    options: Context = context.obj
    labels = labels_of(label)

    async def work(connection: Connection) -> Exit:
        sessions, more = await _newest(connection, labels, limit)
        if options.output.as_json:
            for session in sessions:
                options.output.message(session)
        else:
            options.output.table(map(facts.row_of, sessions), _COLUMNS)
        if more:
            options.output.hint(f"there are more than {limit}; --limit shows them")
        return Exit.COMPLETED

    call(options, work)


@app.command()
def get(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    _json: JsonOption = False,
) -> None:
    """Show what is going on in a session."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        wanted = session_id or (await find_session(connection, Path.cwd())).session_id
        request = session_pb2.GetSessionRequest(session_id=wanted)
        answer = await connection.sessions.GetSession(request, metadata=connection.metadata)
        if options.output.as_json:
            options.output.message(answer.session)
        else:
            asked = await pending(connection, wanted)
            options.output.table(facts.of_session(answer.session, asked))
        return Exit.COMPLETED

    call(options, work)


@app.command()
def close(
    context: typer.Context,
    session_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Default: that of this directory.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every open session of the project.")] = False,
    yes: YesOption = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is closed.")] = True,
    _json: JsonOption = False,
) -> None:
    """Stop what runs, end the agent, and remove the workspace that was made for a session."""
    options: Context = context.obj
    if everything and session_ids:
        raise typer.BadParameter("they exclude each other", param_hint="--all and SESSION")

    async def work(connection: Connection) -> Exit:
        closed, worst = True, Exit.COMPLETED
        wanted = await _to_close(connection, session_ids or [], everything=everything)
        if everything and wanted:
            count = f"{len(wanted)} open session{'s' * (len(wanted) > 1)}"
            await confirm(options.output, f"close {count} of project {options.project}?", yes=yes)
        for session_id in wanted:
            try:
                closed &= await _close(connection, options.output, session_id, wait=wait)
            except grpc.aio.AioRpcError as error:
                refusal = Refusal(error)
                options.output.error(refusal.line(), refusal.hint, refusal.document())
                worst = max(worst, refusal.exit)
        if wait and not closed:
            options.output.error("not every session is closed yet", "`moorage session get` tells why")
            worst = max(worst, Exit.FAILED)
        return worst

    call(options, work, named=everything)


async def _close(connection: Connection, output: Output, session_id: str, *, wait: bool) -> bool:
    """Whether it is closed now."""
    request = session_pb2.CloseSessionRequest(session_id=session_id, wait=wait)
    answer = await connection.sessions.CloseSession(
        request, metadata=connection.metadata, timeout=_CLOSE_TIMEOUT
    )
    if output.as_json:
        output.message(answer.session)
    else:
        output.line(_closing(answer.session))
    return answer.session.state == session_pb2.SESSION_STATE_CLOSED


async def _to_close(connection: Connection, named: list[str], *, everything: bool) -> list[str]:
    if named:
        return named
    if not everything:
        return [(await find_session(connection, Path.cwd())).session_id]
    sessions, _ = await _newest(connection, {}, sys.maxsize)
    return [s.session_id for s in sessions if s.state != session_pb2.SESSION_STATE_CLOSED]


def _closing(session: session_pb2.Session) -> str:
    if session.state == session_pb2.SESSION_STATE_CLOSED:
        return f"{session.session_id} is closed"
    return f"{session.session_id} is closing: {session.operation.waiting_reason}".rstrip(": ")


async def _newest(
    connection: Connection, labels: dict[str, str], limit: int
) -> tuple[list[session_pb2.Session], bool]:
    """At most `limit` sessions, and whether there are more."""
    request = session_pb2.ListSessionsRequest(labels=labels)
    sessions: list[session_pb2.Session] = []
    while True:
        request.page_size = min(_PAGE, limit - len(sessions))
        page = await connection.sessions.ListSessions(request, metadata=connection.metadata)
        sessions.extend(page.sessions)
        request.page_token = page.next_page_token
        if not page.next_page_token or len(sessions) >= limit:
            return sessions, bool(page.next_page_token)
