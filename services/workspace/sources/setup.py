"""Runs the commands that prepare workspaces, and keeps how they ended."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from signal import Signals
from typing import Final, Protocol

from services.workspace.exec.commands import Command, Commands
from services.workspace.exec.environment import Wishes, heritable
from services.workspace.exec.process import Outcome, Process, StartFailed, StartMissed
from services.workspace.providers.registry import Provider, Refused, Unusable
from services.workspace.sources.results import Result, Tail
from services.workspace.sources.wanted import Setup
from services.workspace.specs import Network
from services.workspace.workspaces import Workspace

_ALWAYS: Final = ("PATH", "HOME", "LANG")
_UNSEEN: Final = Outcome(None, None, killed=True)


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
        """Run its set-up command, if it has one; Refused when that does not end with 0.

        Unusable when it is not known how it ended: it is to be run again.
        """
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
        except StartMissed as error:
            raise Unusable(f"its set-up command is not known to run: {error}") from error
        except StartFailed as error:
            raise Refused(f"its set-up command {setup.command[0]} could not be started: {error}") from error
        if ended.outcome is None and not ended.timed_out:
            raise Unusable("it is not known how its set-up command ended")
        return _result(ended.outcome or _UNSEEN, setup.timeout if ended.timed_out else None, tail)


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


def _result(outcome: Outcome, timeout: float | None, tail: Tail) -> Result:
    in_time = timeout is None
    return Result(
        exit_code=outcome.exit_code if in_time else None,
        signal=Signals(outcome.signal).name if in_time and outcome.signal else "",
        timeout=timeout,
        out_of_memory=outcome.out_of_memory,
        output=tail.text,
        truncated=tail.truncated,
    )
