"""`moorage turn …` and `moorage command …`: what was asked of a session, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message
from moorage.session.v1 import session_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.facts import local
from services.cli.stopping import settled, told
from services.cli.transcript import reason_name, state_name, text_of

ItemT = TypeVar("ItemT", bound=Message)

_PAGE = 1000
_TURNS = ("turn", "created", "state", "reason", "prompt")
_COMMANDS = ("command", "created", "what became of it")

SessionArgument = Annotated[
    str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
]
LimitOption = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="At most so many.")]

turn_app = typer.Typer(no_args_is_help=True, help="Turns of a session.")
command_app = typer.Typer(no_args_is_help=True, help="Commands: the Stops of a session.")


@turn_app.command("list")
def list_turns(
    context: typer.Context, session: SessionArgument = "", limit: LimitOption = 50, _json: JsonOption = False
) -> None:
    """List turns, newest first; also those in the queue."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        request = session_pb2.ListTurnsRequest(session_id=await _named(connection, session))

        async def page(size: int, token: str) -> tuple[Iterable[session_pb2.Turn], str]:
            request.page_size, request.page_token = size, token
            answer = await connection.sessions.ListTurns(request, metadata=connection.metadata)
            return answer.turns, answer.next_page_token

        _show(options, await _newest(page, limit), _turn_row, _TURNS)
        return Exit.COMPLETED

    call(options, work)


@command_app.command("list")
def list_commands(
    context: typer.Context,
    session: SessionArgument = "",
    turn: Annotated[str, typer.Option(metavar="TURN", help="Only those about this turn.")] = "",
    limit: LimitOption = 50,
    _json: JsonOption = False,
) -> None:
    """List commands, newest first."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = await _named(connection, session)
        request = session_pb2.ListCommandsRequest(session_id=session_id, turn_id=turn)

        async def page(size: int, token: str) -> tuple[Iterable[session_pb2.Command], str]:
            request.page_size, request.page_token = size, token
            answer = await connection.sessions.ListCommands(request, metadata=connection.metadata)
            return answer.commands, answer.next_page_token

        _show(options, await _newest(page, limit), _command_row, _COMMANDS)
        return Exit.COMPLETED

    call(options, work)


@command_app.command("get")
def get_command(
    context: typer.Context,
    command_id: Annotated[str, typer.Argument(metavar="COMMAND", help="Its id.")],
    session: SessionArgument = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is settled.")] = False,
    _json: JsonOption = False,
) -> None:
    """Show what became of a command."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = await _named(connection, session)
        request = session_pb2.GetCommandRequest(session_id=session_id, command_id=command_id)
        answer = await connection.sessions.GetCommand(request, metadata=connection.metadata)
        command = await settled(connection, answer.command) if wait else answer.command
        if options.output.as_json:
            options.output.message(command)
        else:
            options.output.line(told(command))
        return Exit.COMPLETED

    call(options, work)


async def _named(connection: Connection, session: str) -> str:
    return session or (await find_session(connection, Path.cwd())).session_id


async def _newest(
    page: Callable[[int, str], Awaitable[tuple[Iterable[ItemT], str]]], limit: int
) -> list[ItemT]:
    """At most `limit` items, from as many pages as that takes."""
    found: list[ItemT] = []
    token = ""
    while True:
        items, token = await page(min(_PAGE, limit - len(found)), token)
        found.extend(items)
        if not token or len(found) >= limit:
            return found


def _show(
    options: Context, items: list[ItemT], row: Callable[[ItemT], tuple[str, ...]], columns: tuple[str, ...]
) -> None:
    if options.output.as_json:
        for item in items:
            options.output.message(item)
    else:
        options.output.table(map(row, items), columns)


def _turn_row(turn: session_pb2.Turn) -> tuple[str, ...]:
    place = f" {turn.queue_position}" if turn.queue_position else ""
    reason = reason_name(turn.end_reason) if turn.end_reason else ""
    prompt = " ".join(text_of(block) for block in turn.prompt).split("\n", maxsplit=1)[0]
    return turn.turn_id, local(turn.create_time), f"{state_name(turn.state)}{place}", reason, prompt


def _command_row(command: session_pb2.Command) -> tuple[str, ...]:
    return command.command_id, local(command.create_time), told(command)
