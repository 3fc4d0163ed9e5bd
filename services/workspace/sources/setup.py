"""Runs the commands that prepare workspaces, and keeps how they ended."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from signal import Signals
from typing import Final, Protocol

from services.workspace.exec.commands import Command, Commands, Ended
from services.workspace.exec.environment import Wishes, heritable
from services.workspace.exec.process import Process, StartFailed
from services.workspace.providers.registry import Provider, Refused
from services.workspace.sources.results import Result, Tail
from services.workspace.sources.wanted import Setup
from services.workspace.specs import Network
from services.workspace.workspaces import Workspace

_ALWAYS: Final = ("PATH", "HOME", "LANG")


class Results(Protocol):
    """Where it is kept how set-up commands ended."""

    async def keep_result(self, workspace: Workspace, result: Result) -> None:
        """The last time counts."""
        ...

    async def forget(self, workspace: Workspace) -> None:
        """Keep nothing of it."""
        ...


class SettingUp:
    """One per instance."""

    def __init__(self, commands: Commands, results: Results) -> None:
        """`results` are told before the workspace can be READY."""
        self._commands = commands
        self._results = results

    async def run(self, workspace: Workspace, provider: Provider) -> None:
        """Run its set-up command, if it has one; Refused when that does not end with 0."""
        setup = workspace.spec.setup if workspace.spec else None
        if setup is None:
            return
        async with _reaching(workspace, provider, setup):
            result = await self._run(workspace, provider, setup)
        await self._results.keep_result(workspace, result)
        if result.failure:
            raise Refused(result.failure)

    async def forget(self, workspace: Workspace) -> None:
        """What its command printed goes with it."""
        await self._results.forget(workspace)

    async def _run(self, workspace: Workspace, provider: Provider, setup: Setup) -> Result:
        wishes = Wishes((*_ALWAYS, *setup.inherited), dict(setup.environment))
        environment = wishes.out_of(heritable(await provider.environment(workspace)))
        command = Command(setup.command, environment, setup.timeout)
        tail = Tail()

        async def spawn() -> Process:
            return await provider.spawn(workspace, "", None)

        try:
            ended = await self._commands.run(workspace, spawn, command, lambda _, data: tail.take(data))
        except StartFailed as error:
            raise Refused(f"its set-up command {setup.command[0]} could not be started: {error}") from error
        return _result(ended, setup, tail)


@contextlib.asynccontextmanager
async def _reaching(workspace: Workspace, provider: Provider, setup: Setup) -> AsyncIterator[None]:
    """Within the block its processes reach what the command may; before it is READY, what they may."""
    usual = workspace.spec.network if workspace.spec else Network.UNSPECIFIED
    wanted = Network(setup.network) if setup.network else usual
    if wanted is usual:
        yield
        return
    await provider.reach(workspace, wanted)
    try:
        yield
    finally:
        await provider.reach(workspace, usual)


def _result(ended: Ended, setup: Setup, tail: Tail) -> Result:
    outcome = ended.outcome
    code = None if outcome is None or ended.timed_out else outcome.exit_code
    signal = ""
    if code is None and not ended.timed_out:
        # When nobody was left to report it, it was killed.
        signal = Signals((outcome and outcome.signal) or Signals.SIGKILL).name
    return Result(
        exit_code=code,
        signal=signal,
        timeout=setup.timeout if ended.timed_out else None,
        out_of_memory=outcome is not None and outcome.out_of_memory,
        output=tail.text,
        truncated=tail.truncated,
    )
