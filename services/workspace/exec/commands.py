"""Commands that the instance itself runs for a workspace, from their start to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from services.common.clock import Clock
from services.common.errors import Cancelled
from services.workspace.exec.execs import Exec, Execs, SessionKey
from services.workspace.exec.output import Channel, copy_output
from services.workspace.exec.process import Outcome, Process, StartFailed, WriteEnd
from services.workspace.exec.timeout import Timeout
from services.workspace.instance import Instance
from services.workspace.workspaces import Workspace

# Where only the process itself can be sure to end in time, it does so much later than it is told to.
_MARGIN: Final = 30.0

Spawn = Callable[[], Awaitable[Process]]
Take = Callable[[Channel, bytes], None]


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: with exactly this environment, with this input, for at most `timeout` seconds."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    timeout: float
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended; without an outcome nobody knows. `timed_out`: it was to be killed as it lasted too long.

    What was killed although nothing here wanted that is not known either: where nobody could be
    heard, as with an engine that hangs, it ends with the time that the instance had then.
    """

    outcome: Outcome | None
    timed_out: bool = False


class Commands:
    """They end with the instance's lease and with the workspace, like execs, but no grant rules them."""

    def __init__(self, instance: Instance, execs: Execs, clock: Clock) -> None:
        """`execs` are those of the instance."""
        self._instance = instance
        self._execs = execs
        self._clock = clock

    async def run(self, workspace: Workspace, spawn: Spawn, command: Command, take: Take) -> Ended:
        """Run it; when this returns or raises, all its processes are dead.

        `take` gets what it prints. StartFailed, StartMissed; the error with which it had to end.
        """
        which = self._execs.register(_key(workspace), workspace.workspace_id, 0)
        try:
            self._instance.require()
            process = await spawn()
            self._execs.attach(which, process)
            try:
                return await self._converse(which, process, command, take)
            except StartFailed:
                which.check()
                raise
            finally:
                process.streams.close()
        finally:
            which.end(Cancelled())
            self._execs.discard(which)
            await self._execs.until_gone([which])

    async def _converse(self, which: Exec, process: Process, command: Command, take: Take) -> Ended:
        async def write(channel: Channel, data: bytes) -> None:
            take(channel, data)

        process.live_until(self._clock.boottime() + command.timeout + _MARGIN)
        environment = {**command.environment, **self._instance.marker.of(which.exec_id).environment()}
        timeout = Timeout(process, command.timeout, self._clock)
        beside = asyncio.create_task(timeout.run())
        try:
            await process.start(command.arguments, environment, terminal=False)
            feeding = asyncio.create_task(_feed(process.streams.stdin, command.stdin))
            try:
                await copy_output(process.streams, which.gone, write)
                outcome = await asyncio.shield(which.gone)
            finally:
                await _over(feeding)
        finally:
            await _over(beside)
        which.check()
        if timeout.has_ended(outcome):
            return Ended(outcome, timed_out=True)
        return Ended(None if outcome is not None and outcome.killed else outcome)


def _key(workspace: Workspace) -> SessionKey:
    """No session's: whoever claims a session does not end what prepares its workspace."""
    return SessionKey(workspace.project, f"/{workspace.workspace_id}")


async def _feed(stdin: WriteEnd, data: bytes) -> None:
    """Until all is written, or nobody reads."""
    left = memoryview(data)
    try:
        while left:
            if written := stdin.write_now(left):
                left = left[written:]
            else:
                await stdin.wait()
    except OSError:
        return
    finally:
        stdin.close()


async def _over(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
