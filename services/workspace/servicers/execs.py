"""Exec: one command per stream, fenced from its start to the death of its last process (W6, F6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from signal import SIGKILL

from google.protobuf.duration_pb2 import Duration
from moorage.workspace.v1 import workspace_pb2

from services.common.clock import Clock
from services.common.errors import Cancelled, DependencyUnavailable, MoorageError
from services.common.logs import bind
from services.fencing.verifier import GrantVerifier
from services.workspace.exec.execs import Exec, Execs
from services.workspace.exec.input import Stdin
from services.workspace.exec.output import Channel, copy_output
from services.workspace.exec.process import Outcome, Process, StartFailed, StartMissed
from services.workspace.exec.signals import signal_name
from services.workspace.exec.timeout import Timeout
from services.workspace.fence import Fence, Shown
from services.workspace.instance import Instance
from services.workspace.resolving import Resolver
from services.workspace.servicers.beside import beside
from services.workspace.servicers.conversation import Conversation, Write
from services.workspace.servicers.frames import Command, command_of, first_of
from services.workspace.servicers.validity import Validity
from services.workspace.workspaces import ExecStartFailed, Workspace, WorkspaceNotReady

Frames = AsyncIterator[workspace_pb2.ExecRequest]


@dataclass(frozen=True, slots=True)
class ExecCalls:
    """Runs one command for each call of Exec. `expiry_margin` is in seconds."""

    instance: Instance
    fence: Fence
    execs: Execs
    resolver: Resolver
    verifier: GrantVerifier
    clock: Clock
    expiry_margin: float

    async def run(self, frames: Frames, write: Write) -> None:
        """From the first message to the last; when it returns or raises, all processes are dead."""
        start = await first_of(frames)
        command = command_of(start)
        self.instance.require()
        shown = await self.fence.examine(command.project, command.workspace_id, start.grant)
        bind(project=shown.session.project, session=shown.session.session_id)
        # Once more, without a suspension before it is registered: what is lost from now on ends it.
        self.instance.require()
        which = self.execs.register(shown.session, command.workspace_id, shown.claims.token)
        try:
            async with beside(_until_refused(which)):
                await self._run(which, shown, command, frames, write)
        except WorkspaceNotReady:
            # Its place went from under it: whoever asks next shall be told.
            await self.resolver.notice(command.project, command.workspace_id)
            raise
        finally:
            which.end(Cancelled())
            self.execs.discard(which)
            await self.execs.until_gone([which])

    async def _run(self, which: Exec, shown: Shown, command: Command, frames: Frames, write: Write) -> None:
        validity = Validity(which, shown.claims, self.clock, self.expiry_margin)
        async with beside(validity.run()):
            process, environment = await self._admit(which, shown, command)
            try:
                validity.tell(process)
                pid = await self._start(which, shown, process, command, environment)
                await write(_started(which, pid))
                await self._converse(which, process, command, validity, frames, write)
            finally:
                process.streams.close()

    async def _admit(self, which: Exec, shown: Shown, command: Command) -> tuple[Process, dict[str, str]]:
        """Write the token down, see lower execs dead, and make the process; it runs nothing yet."""
        workspace = await self.fence.write_down(shown)
        await self.execs.until_gone(self.execs.supersede(which))
        environment = command.environment.out_of(await self.resolver.environment(workspace))
        try:
            process = await self.resolver.spawn(workspace, command.directory, command.terminal)
        except StartFailed as error:
            raise _not_started(workspace, command, error) from error
        # No suspension since it was made: whoever ends the exec from now on finds what to kill.
        self.execs.attach(which, process)
        return process, environment | self.instance.marker.of(which.exec_id).environment()

    async def _start(
        self, which: Exec, shown: Shown, process: Process, command: Command, environment: dict[str, str]
    ) -> int:
        try:
            return await process.start(command.arguments, environment, terminal=process.streams.has_terminal)
        except StartFailed as error:
            process.kill()
            # What became of its place is known then, and says more.
            await asyncio.shield(which.gone)
            which.check()
            raise _not_started(shown.workspace, command, error) from error

    async def _converse(
        self,
        which: Exec,
        process: Process,
        command: Command,
        validity: Validity,
        frames: Frames,
        write: Write,
    ) -> None:
        stdin = Stdin(
            process.streams.stdin,
            terminal=process.streams.has_terminal,
            may_write=lambda: which.may_live,
        )
        conversation = Conversation(which, process, stdin, validity, self.execs, self.verifier)
        timeout = Timeout(process, command.timeout, self.clock)
        say = _one_at_a_time(write)
        async with beside(conversation.run(frames), conversation.answer(say), stdin.run(), timeout.run()):
            await copy_output(process.streams, which.gone, lambda *piece: say(_output(*piece)))
            outcome = await asyncio.shield(which.gone)
            which.check()
            await say(_ended(outcome, timeout))


def _one_at_a_time(write: Write) -> Write:
    """Output and answers share a stream, and two writes at once break it."""
    lock = asyncio.Lock()

    async def say(message: workspace_pb2.ExecResponse) -> None:
        async with lock:
            await write(message)

    return say


def _not_started(workspace: Workspace, command: Command, error: StartFailed) -> MoorageError:
    """What its caller is told: a verdict on the command only where it is one."""
    if isinstance(error, StartMissed):
        return DependencyUnavailable(dependency=workspace.provider, cause=str(error))
    return ExecStartFailed(command=command.arguments[0], cause=str(error))


async def _until_refused(which: Exec) -> None:
    raise await asyncio.shield(which.refused)


def _started(which: Exec, pid: int) -> workspace_pb2.ExecResponse:
    started = workspace_pb2.ExecStarted(exec_id=which.exec_id, pid=pid)
    return workspace_pb2.ExecResponse(started=started)


def _output(channel: Channel, data: bytes) -> workspace_pb2.ExecResponse:
    if channel is Channel.STDOUT:
        return workspace_pb2.ExecResponse(stdout=data)
    return workspace_pb2.ExecResponse(stderr=data)


def _ended(outcome: Outcome | None, timeout: Timeout) -> workspace_pb2.ExecResponse:
    ended = _how(outcome, timeout)
    ended.out_of_memory = outcome is not None and outcome.out_of_memory
    return workspace_pb2.ExecResponse(ended=ended)


def _how(outcome: Outcome | None, timeout: Timeout) -> workspace_pb2.ExecEnded:
    if timeout.has_ended(outcome):
        after = Duration()
        after.FromNanoseconds(round(timeout.seconds * 1e9))
        return workspace_pb2.ExecEnded(timeout=workspace_pb2.ExecTimeout(after=after))
    if outcome is None or outcome.exit_code is None:
        # The shim's death is the command's, by SIGKILL, even if nobody is left to report it.
        number = outcome.signal if outcome is not None and outcome.signal else SIGKILL
        return workspace_pb2.ExecEnded(signal=signal_name(number))
    return workspace_pb2.ExecEnded(exit_code=outcome.exit_code)
