"""`moorage approval`: answers that stand, and taking them back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit

app = typer.Typer(no_args_is_help=True, help="Answers once and for all: what an agent may always do here.")

SessionArgument = Annotated[
    str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
]
_COLUMNS = ("id", "answer", "tool", "title")


@app.command("list")
def list_standing(context: typer.Context, session: SessionArgument = "", _json: JsonOption = False) -> None:
    """List the answers that stand, oldest first."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        standing = await _standing(connection, await _session_id(connection, session))
        if options.output.as_json:
            for each in standing:
                options.output.message(each)
        elif standing:
            options.output.table(map(_row, standing), _COLUMNS)
        else:
            options.output.hint("no answer stands")
        return Exit.COMPLETED

    call(options, work)


@app.command()
def revoke(
    context: typer.Context,
    standing: Annotated[str, typer.Argument(metavar="ID", help="The answer; `list` names them.")],
    session: SessionArgument = "",
    _json: JsonOption = False,
) -> None:
    """Take an answer back: from now on you are asked again."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        request = session_pb2.RevokeStandingAnswerRequest(
            session_id=await _session_id(connection, session), standing_answer_id=standing
        )
        answered = await connection.sessions.RevokeStandingAnswer(request, metadata=connection.metadata)
        if options.output.as_json:
            options.output.message(answered.standing_answer)
        else:
            options.output.line(f"revoked: {' '.join(_row(answered.standing_answer)[1:])}")
        return Exit.COMPLETED

    call(options, work)


async def _session_id(connection: Connection, session: str) -> str:
    return session or (await find_session(connection, Path.cwd())).session_id


async def _standing(connection: Connection, session_id: str) -> list[session_pb2.StandingAnswer]:
    found: list[session_pb2.StandingAnswer] = []
    request = session_pb2.ListStandingAnswersRequest(session_id=session_id, page_size=1000)
    while True:
        page = await connection.sessions.ListStandingAnswers(request, metadata=connection.metadata)
        found += page.standing_answers
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def _row(standing: session_pb2.StandingAnswer) -> tuple[str, str, str, str]:
    return (
        standing.standing_answer_id,
        "allow" if standing.allow else "reject",
        standing.tool_kind or "-",
        standing.title or "(all)",
    )
