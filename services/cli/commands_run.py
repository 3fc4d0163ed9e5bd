"""`moorage run` and `moorage watch`: turns and transcripts as they come."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import turn_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session, session_of
from services.cli.exits import Exit, exit_of
from services.cli.options import Approval, policy_of
from services.cli.output import Output
from services.cli.patience import Cut, Patience
from services.cli.records import stored_records, watched_records
from services.cli.transcript import Transcript
from services.cli.turns import TurnStream


def run(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to tell the agent.")],
    session: Annotated[
        str, typer.Option(metavar="SESSION", help="A session to continue. Default: that of this directory.")
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help="For a new session: the agent's profile.")
    ] = "",
    approval: Annotated[
        Approval, typer.Option(help="For a new session: what happens to the agent's questions.")
    ] = Approval.deny,
    _json: JsonOption = False,
) -> None:
    """Run one turn and stream it; the exit code says how it ended."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = session or await _own_session(connection, profile, approval)
        stream = TurnStream(connection, session_id, prompt, Patience(options.output.hint))
        try:
            return exit_of(await _follow(options.output, stream))
        except (asyncio.CancelledError, Cut):
            if stream.admitted:
                options.output.hint(
                    f"the turn goes on: `moorage watch {session_id} --after {stream.last_seq}` shows it"
                )
            raise

    call(options, work)


def watch(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    after: Annotated[int, typer.Option(min=0, metavar="SEQ", help="Only records after this one.")] = 0,
    follow: Annotated[bool, typer.Option(help="Go on with what comes; Ctrl-C ends it.")] = True,
    _json: JsonOption = False,
) -> None:
    """Show a session's transcript, and then what comes."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = session or (await find_session(connection, Path.cwd())).session_id
        if follow:
            records = watched_records(connection, session_id, after, Patience(options.output.hint))
        else:
            records = stored_records(connection, session_id, after)
        transcript = Transcript(options.output)
        show = options.output.message if options.output.as_json else transcript.show
        async with aclosing(records):
            async for record in records:
                show(record)
        transcript.close()
        return Exit.COMPLETED

    call(options, work)


async def _own_session(connection: Connection, profile: str, approval: Approval) -> str:
    found = await session_of(connection, Path.cwd(), profile=profile, approval_policy=policy_of(approval))
    return found.session_id


async def _follow(output: Output, stream: TurnStream) -> turn_pb2.TurnState.ValueType:
    state = turn_pb2.TURN_STATE_UNSPECIFIED
    transcript = Transcript(output)
    async with aclosing(stream.events()) as events:
        async for event in events:
            if output.as_json:
                output.message(event)
            elif event.HasField("record"):
                transcript.show(event.record)
            state = event.ended.state
    transcript.close()
    return state
