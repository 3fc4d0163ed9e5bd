"""Runs the commands that prepare workspaces, and keeps how they ended."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from services.common.failpoints import failpoint
from services.workspace.exec.commands import Command, Commands
from services.workspace.exec.environment import Wishes, heritable
from services.workspace.exec.process import Outcome, Process, StartFailed, StartMissed
from services.workspace.exec.signals import signal_name
from services.workspace.providers.registry import Provider, Refused, Unusable, Vanished
from services.workspace.sources.results import Result, Tail
from services.workspace.sources.wanted import Setup
from services.workspace.specs import Network
from services.workspace.workspaces import Workspace

_ALWAYS: Final = ("PATH", "HOME", "LANG")
_UNSEEN: Final = Outcome(None, None, killed=True)
_TRIES: Final = 4


class Results(Protocol):
    """Where it is kept how set-up commands ended."""

    async def keep_result(self, workspace: Workspace, result: Result) -> None:
        """The last time counts."""
        ...

    async def result(self, project: str, workspace_id: str) -> Result | None:
        """What is kept."""
        ...

    async def drop_result(self, workspace: Workspace) -> None:
        """It counts no more."""
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
        # How often nobody heard of an end.
        self._unheard: Counter[tuple[str, str]] = Counter()

    async def is_over(self, workspace: Workspace, provider: Provider) -> bool:
        """Whether an earlier try saw its command end, and the workspace is as it is to be when it is READY.

        Then nothing is made anew: that would undo what the command did. Refused as with `run`; Unusable.
        """
        setup = workspace.spec.setup if workspace.spec else None
        if setup is None:
            return False
        result = await self._results.result(workspace.project, workspace.workspace_id)
        if result is None:
            return False
        await self._conclude(workspace, provider, setup, result)
        return True

    async def run(self, workspace: Workspace, provider: Provider) -> None:
        """Run its set-up command, if it has one; Refused when that does not end with 0.

        Unusable when it is not known how it ended: it is to be run again. What is known is kept before
        anything else can fail.
        """
        setup = workspace.spec.setup if workspace.spec else None
        if setup is None:
            return
        if _differs(workspace, setup):
            await provider.reach(workspace, Network(setup.network))
        result = await self._run(workspace, provider, setup)
        await self._results.keep_result(workspace, result)
        await failpoint("workspace.setup.after_result")
        await self._conclude(workspace, provider, setup, result)

    async def forget(self, workspace: Workspace) -> None:
        """What its command printed goes with it."""
        self._unheard.pop(_key(workspace), None)
        await self._results.forget(workspace)

    async def _conclude(self, workspace: Workspace, provider: Provider, setup: Setup, result: Result) -> None:
        """It reaches what it may when it is READY, which comes after this alone. Refused, Unusable.

        What has failed, or is made anew, need not: nothing runs in it.
        """
        self._unheard.pop(_key(workspace), None)
        if result.failure:
            raise Refused(result.failure)
        try:
            await provider.check(workspace)
            if _differs(workspace, setup):
                await provider.reach(workspace, _usual(workspace))
        except Vanished:
            # What the command made is gone as well.
            await self._results.drop_result(workspace)
            raise

    def _missed(self, workspace: Workspace, what: str) -> Exception:
        """Nobody heard of its end: it may be no accident, but something that the command does."""
        self._unheard[_key(workspace)] += 1
        if self._unheard[_key(workspace)] < _TRIES:
            return Unusable(what)
        del self._unheard[_key(workspace)]
        return Refused(f"it is not known how its set-up command ended, {_TRIES} times")

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
            # Or it was so quick to end what watches over it that nobody heard of its start.
            raise self._missed(workspace, f"its set-up command is not known to run: {error}") from error
        except StartFailed as error:
            raise Refused(f"its set-up command {setup.command[0]} could not be started: {error}") from error
        if ended.outcome is None and not ended.timed_out:
            raise self._missed(workspace, "it is not known how its set-up command ended")
        return _result(ended.outcome or _UNSEEN, setup.timeout if ended.timed_out else None, tail)


def _usual(workspace: Workspace) -> Network:
    return workspace.spec.network if workspace.spec else Network.UNSPECIFIED


def _differs(workspace: Workspace, setup: Setup) -> bool:
    """Whether its command reaches something else than what runs later."""
    return setup.network not in ("", _usual(workspace))


def _key(workspace: Workspace) -> tuple[str, str]:
    return workspace.project, workspace.workspace_id


def _result(outcome: Outcome, timeout: float | None, tail: Tail) -> Result:
    in_time = timeout is None
    return Result(
        exit_code=outcome.exit_code if in_time else None,
        signal=signal_name(outcome.signal) if in_time and outcome.signal else "",
        timeout=timeout,
        out_of_memory=outcome.out_of_memory,
        output=tail.text,
        truncated=tail.truncated,
    )
