"""`moorage run` and `moorage watch`: turns and transcripts as they come."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import grpc
import typer
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.cli import baselines, refused, waiting
from services.cli.activity import look
from services.cli.agents import AgentOptionOption, McpOption, ModelOption, ModeOption, SecretOption, agent_of
from services.cli.answering import AwaitsAnswer
from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session, session_of
from services.cli.exits import Exit, exit_of
from services.cli.live import LiveView
from services.cli.live_transcript import LiveTranscript
from services.cli.making import (
    ArchiveOption,
    CpusOption,
    DockerOption,
    EmptyOption,
    GitOption,
    ImageOption,
    Making,
    MemoryOption,
    NetworkOption,
    PidsOption,
    SetupOption,
)
from services.cli.options import (
    ApprovalWishOption,
    IfBusy,
    IfBusyOption,
    OnInterrupt,
    OnInterruptOption,
    PromptFileOption,
)
from services.cli.output import Output
from services.cli.patience import Cut, Patience
from services.cli.questions import Asker, confirmed, has_terminal, waits
from services.cli.records import stored_records, watched_records
from services.cli.scene import Scene
from services.cli.stopping import settled, stop, told
from services.cli.transcript import Transcript
from services.cli.turns import TurnStream
from services.cli.wishes import Wishes

_MEANS = {
    OnInterrupt.ask: "stops or leaves it",
    OnInterrupt.stop: "stops it",
    OnInterrupt.detach: "leaves it",
}


def run(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="What to tell the agent.", show_default=False)
    ] = None,
    session: Annotated[
        str, typer.Option(metavar="SESSION", help="A session to continue. Default: that of this directory.")
    ] = "",
    new: Annotated[
        bool, typer.Option("--new", help="In a new session of this directory; the one before stays as it is.")
    ] = False,
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help="For a new session: the agent's profile.")
    ] = "",
    approval: ApprovalWishOption = None,
    model: ModelOption = "",
    mode: ModeOption = "",
    agent_option: AgentOptionOption = None,
    mcp: McpOption = None,
    secret: SecretOption = None,
    docker: DockerOption = False,
    image: ImageOption = "",
    network: NetworkOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = "",
    pids: PidsOption = None,
    empty: EmptyOption = False,
    git: GitOption = "",
    archive: ArchiveOption = "",
    setup: SetupOption = "",
    prompt_file: PromptFileOption = None,
    on_interrupt: OnInterruptOption = OnInterrupt.ask,
    if_busy: IfBusyOption = IfBusy.reject,
    _json: JsonOption = False,
) -> None:
    """Run one turn and stream it; the exit code says how it ended.

    A new session works in this directory; with --docker in a container that has this directory in
    it, and nothing else of this machine; with --empty, --git or --archive in a new workspace.
    """
    options: Context = context.obj
    words = _words(options.output, prompt, prompt_file)
    making = Making("", docker, image, network, cpus, memory, pids, git, archive, setup, empty=empty)
    making.check()
    if new and session:
        raise typer.BadParameter("they exclude each other", param_hint="--new and --session")
    wishes = Wishes(agent_of(profile, model, mode, agent_option, mcp, secret), approval, making)

    async def work(connection: Connection) -> Exit:
        session_id = await _session_for(connection, session, wishes, new=new)
        tree = await asyncio.to_thread(baselines.take, Path.cwd())
        stream = TurnStream(
            connection, session_id, words, _patience(options.output, connection), if_busy.message
        )
        baselines.keep(Path.cwd(), session_id, stream.turn_id, tree)
        try:
            return await _followed(connection, options.output, stream, session_id, on_interrupt)
        except grpc.aio.AioRpcError as error:
            if not stream.admitted:
                refused.note(error, words, session)
            raise
        except Cut:
            options.output.hint(_not_known(session_id, stream))
            raise

    call(options, work)


async def _followed(
    connection: Connection, output: Output, stream: TurnStream, session_id: str, on_interrupt: OnInterrupt
) -> Exit:
    """Show the turn to its end, or to Ctrl-C and what that means."""
    scene = Scene(f"Ctrl-C {_MEANS[on_interrupt]}", time.time())
    try:
        return exit_of(await _follow(connection, output, stream, session_id, scene))
    except asyncio.CancelledError:
        stops = on_interrupt is OnInterrupt.stop or (on_interrupt is OnInterrupt.ask and await _wants_stop())
        if stream.admitted and await _stopped_instead(connection, output, session_id, stream, stops=stops):
            return Exit.STOPPED
        raise


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
            records = watched_records(connection, session_id, after, _patience(options.output, connection))
        else:
            records = stored_records(connection, session_id, after)
        scene = Scene("Ctrl-C leaves it")
        transcript = _transcript(options.output, scene)
        show = options.output.message if options.output.as_json else transcript.show
        try:
            async with aclosing(records), LiveView(options.output, scene).shown():
                async for record in records:
                    show(record)
        finally:
            transcript.leave()
        return Exit.COMPLETED

    call(options, work)


async def _session_for(connection: Connection, named: str, wishes: Wishes, *, new: bool) -> str:
    """The named session, else the directory's. Raises OtherSession when it is not as it is wished."""
    if not named:
        own = await session_of(
            connection,
            Path.cwd(),
            agent=wishes.agent,
            approval_policy=wishes.policy,
            making=wishes.making,
            new=new,
        )
        if wishes.making:
            # A list tells less of a workspace.
            own = await _get(connection, own.session_id)
        wishes.check(own, f"`moorage session close {own.session_id}`, and `run` makes one that has it")
        return own.session_id
    if wishes:
        session = await _get(connection, named)
        wishes.check(session, "`moorage session create` makes one that has it, for --session")
    return named


async def _get(connection: Connection, session_id: str) -> session_pb2.Session:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    return (await connection.sessions.GetSession(request, metadata=connection.metadata)).session


def _transcript(output: Output, scene: Scene) -> Transcript:
    return LiveTranscript(output, scene) if output.is_lively else Transcript(output)


async def _follow(
    connection: Connection, output: Output, stream: TurnStream, session_id: str, scene: Scene
) -> turn_pb2.TurnState.ValueType:
    state = turn_pb2.TURN_STATE_UNSPECIFIED
    transcript = _transcript(output, scene)
    looking = partial(look, connection, session_id, stream.turn_id)
    view = LiveView(output, scene, looking)
    # A terminal shows it in the view.
    aside = nullcontext() if output.is_lively else waiting.told(output.hint, looking)
    asker = Asker(connection, session_id, output) if has_terminal() and not output.as_json else None
    try:
        async with aclosing(stream.events()) as events, view.shown(), aside:
            async for event in events:
                if output.as_json:
                    output.message(event)
                elif event.HasField("record"):
                    transcript.show(event.record)
                elif event.HasField("admitted"):
                    _tell_place(output, event.admitted)
                if event.HasField("record"):
                    await _ask(connection, asker, event.record, session_id)
                view.heard(held=bool(asker and asker.asking))
                state = event.ended.state
    finally:
        transcript.leave()
        if asker is not None:
            await asker.close()
    return state


def _tell_place(output: Output, turn: session_pb2.Turn) -> None:
    if turn.queue_position:
        place = "next" if turn.queue_position == 1 else f"number {turn.queue_position} in the queue"
        output.hint(f"another turn is in progress; this one is {place} ({turn.turn_id})")


async def _ask(
    connection: Connection, asker: Asker | None, record: record_pb2.Record, session_id: str
) -> None:
    asked = record.body.interaction_opened
    if asked.interaction_id and not await waits(connection, session_id, asked.interaction_id):
        # An answer that stands has settled it, or somebody else was quicker.
        return
    if asker is not None:
        asker.see(record)
    elif asked.interaction_id:
        raise AwaitsAnswer(session_id, record.seq, asked)


def _words(output: Output, prompt: str | None, file: Path | None) -> str:
    """What is told to the agent."""
    if prompt is not None and file is None:
        return prompt
    if prompt is None and file is not None:
        try:
            return refused.read(file)
        except refused.NoPrompt as missing:
            output.error(str(missing))
            raise typer.Exit(missing.exit) from missing
    raise typer.BadParameter("a prompt is needed, or a file that holds one", param_hint="PROMPT")


async def _wants_stop() -> bool:
    """Ask, where somebody can be asked."""
    return has_terminal() and await confirmed("stop the turn? [y: stop, n: let it go on] ")


async def _stopped_instead(
    connection: Connection, output: Output, session_id: str, stream: TurnStream, *, stops: bool
) -> bool:
    """After Ctrl-C: whether the turn is to be stopped, and was; else it goes on."""
    if not stops:
        output.hint(_goes_on(session_id, stream))
        return False
    output.line(told(await settled(connection, await stop(connection, session_id, stream.turn_id))))
    return True


def _patience(output: Output, connection: Connection) -> Patience:
    return Patience(output.hint, f"the session service at {connection.target}")


def _not_known(session_id: str, stream: TurnStream) -> str:
    return (
        "what became of the turn is not known; once the service is back "
        f"`moorage watch {session_id} --after {stream.last_seq}` shows it"
    )


def _goes_on(session_id: str, stream: TurnStream) -> str:
    return (
        f"the turn goes on: `moorage watch {session_id} --after {stream.last_seq}` shows it, "
        f"`moorage stop {session_id} --turn {stream.turn_id}` stops it"
    )
