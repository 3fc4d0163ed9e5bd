"""`moorage stop` and `moorage answer`: what can be said to a turn in progress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.cli.answering import offered
from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.forms import ACCEPT, Misfit, properties_of, values_of
from services.cli.questions import answer as send_answer
from services.cli.questions import option_of, pending
from services.cli.stopping import held, released, settled, told
from services.cli.stopping import stop as send_stop

SessionArgument = Annotated[
    str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
]


class NothingRuns(CommandFailed):
    """There is no turn to stop."""


class NoSuchTurn(CommandFailed):
    """The session has no turn of this id."""


class NoQuestion(CommandFailed):
    """There is no such question, or more than one."""


class NotOffered(CommandFailed):
    """The agent does not offer this answer."""

    exit = Exit.USAGE


def stop(
    context: typer.Context,
    session: SessionArgument = "",
    turn: Annotated[
        str,
        typer.Option(metavar="TURN", help="The turn, also one in the queue. Default: the one in progress."),
    ] = "",
    wait: Annotated[bool, typer.Option(help="Wait until the turn has ended.")] = True,
    _json: JsonOption = False,
) -> None:
    """Stop a turn. The order names the turn, so it never hits another one."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = session or (await find_session(connection, Path.cwd())).session_id
        turn_id = turn or await _turn_in_progress(connection, session_id)
        command = await send_stop(connection, session_id, turn_id)
        if wait:
            command = await settled(connection, command)
        if options.output.as_json:
            options.output.message(command)
        elif command.outcome != session_pb2.COMMAND_OUTCOME_WITHDRAWN:
            options.output.line(told(command))
        if command.outcome == session_pb2.COMMAND_OUTCOME_WITHDRAWN:
            raise NoSuchTurn(
                f"session {session_id} has no turn {turn_id}",
                hint=f"for 10 minutes none with this id can be started; `moorage turn list {session_id}` shows them",
            )
        for waiting in (await held(connection, session_id))[:1]:
            options.output.hint(f"turn {waiting} is held in the queue: {released(session_id, waiting)}")
        return Exit.COMPLETED

    call(options, work)


def answer(
    context: typer.Context,
    word: Annotated[str, typer.Argument(metavar="ANSWER", help="`approve`, `deny`, or an option's id.")],
    session: SessionArgument = "",
    question: Annotated[
        str, typer.Option(metavar="QUESTION", help="Which question. Default: the only one that waits.")
    ] = "",
    value: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="What is filled in in a form; repeatable.")
    ] = None,
    _json: JsonOption = False,
) -> None:
    """Answer the agent's question."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = session or (await find_session(connection, Path.cwd())).session_id
        asked = _only(await pending(connection, session_id), question)
        option_id = option_of(list(asked.options), word)
        if option_id is None:
            raise NotOffered(f"{word} is not offered", hint=f"offered: {offered(asked.options)}")
        values = _filled_in(asked, value or [], option_id)
        await send_answer(connection, session_id, asked.interaction_id, option_id, values)
        if options.output.as_json:
            options.output.document({"interactionId": asked.interaction_id, "optionId": option_id})
        else:
            options.output.line(f"{asked.title}: {option_id}")
        return Exit.COMPLETED

    call(options, work)


async def _turn_in_progress(connection: Connection, session_id: str) -> str:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    answered = await connection.sessions.GetSession(request, metadata=connection.metadata)
    if not answered.session.HasField("turn"):
        raise NothingRuns(f"no turn is in progress in {session_id}")
    return answered.session.turn.turn_id


def _only(waiting: list[session_pb2.Interaction], question: str) -> session_pb2.Interaction:
    found = [asked for asked in waiting if question in ("", asked.interaction_id)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{asked.interaction_id} ({asked.title})" for asked in waiting)
    if found:
        raise NoQuestion("several questions wait", hint=f"name one with --question: {names}")
    raise NoQuestion("no such question waits" if question else "no question waits", hint=names)


def _filled_in(asked: session_pb2.Interaction, given: list[str], option_id: str) -> str:
    if asked.kind != record_pb2.INTERACTION_KIND_FORM or option_id != ACCEPT:
        return ""
    try:
        return values_of(asked.schema, given)
    except Misfit as misfit:
        names = " ".join(f"--value {each.name}=…" for each in properties_of(asked.schema))
        raise NotOffered(str(misfit), hint=names) from misfit
