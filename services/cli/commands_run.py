"""`moorage run` and `moorage watch`: turns and transcripts as they come."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import turn_pb2

from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import session_of
from services.cli.exits import Exit, exit_of
from services.cli.output import Output
from services.cli.records import stored_records, watched_records
from services.cli.transcript import Transcript
from services.cli.turns import TurnStream


class Approval(StrEnum):
    """Policies that a session can have."""

    allow = "allow"
    deny = "deny"


def policy_of(approval: Approval) -> turn_pb2.ApprovalPolicy.ValueType:
    """The contract's value."""
    return turn_pb2.ApprovalPolicy.Value(f"APPROVAL_POLICY_{approval.value.upper()}")


def run(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="What to tell the agent.")],
    session: Annotated[
        str, typer.Option(help="A session to continue. Default: the one of this directory.")
    ] = "",
    profile: Annotated[str, typer.Option(help="For a new session: the agent's profile.")] = "",
    approval: Annotated[
        Approval, typer.Option(help="For a new session: what happens to the agent's questions.")
    ] = Approval.deny,
    _json: JsonOption = False,
) -> None:
    """Run one turn and stream it; the exit code says how it ended."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        session_id = session or await _own_session(connection, profile, approval)
        stream = TurnStream(connection, session_id, prompt)
        return exit_of(await _follow(options.output, stream))

    call(options, work)


def watch(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="The session.")],
    after: Annotated[int, typer.Option(help="Only records after this seq.")] = 0,
    follow: Annotated[bool, typer.Option(help="Go on with what comes; Ctrl-C ends it.")] = True,
    _json: JsonOption = False,
) -> None:
    """Show a session's transcript, and then what comes."""
    options: Context = context.obj

    async def work(connection: Connection) -> Exit:
        transcript = Transcript(options.output)
        records = watched_records if follow else stored_records
        async for record in records(connection, session, after):
            if options.output.as_json:
                options.output.message(record)
            else:
                transcript.show(record)
        transcript.close()
        return Exit.COMPLETED

    call(options, work)


async def _own_session(connection: Connection, profile: str, approval: Approval) -> str:
    found = await session_of(connection, Path.cwd(), profile=profile, approval_policy=policy_of(approval))
    return found.session_id


async def _follow(output: Output, stream: TurnStream) -> turn_pb2.TurnState.ValueType:
    state = turn_pb2.TURN_STATE_UNSPECIFIED
    transcript = Transcript(output)
    async for event in stream.events():
        if output.as_json:
            output.message(event)
        elif event.WhichOneof("event") == "record":
            transcript.show(event.record)
        state = event.ended.state
    transcript.close()
    return state
