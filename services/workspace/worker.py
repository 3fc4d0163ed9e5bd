"""Does in the background what stored intents ask for: makes and removes workspaces (W1 to W4)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.loops import forever
from services.workspace import texts
from services.workspace.changes import Changes
from services.workspace.exec.execs import Execs
from services.workspace.instance import Instance
from services.workspace.providers.registry import PassedBy, Refused, Registry, Unusable
from services.workspace.sources.filling import Filling
from services.workspace.sources.setup import SettingUp
from services.workspace.store.work import WorkStore
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.workspaces import Origin, Workspace, WorkspaceState, not_ready

# Making may take its time, with sources and set-up commands; removing does not wait for it.
_AT_ONCE: Final = {WorkspaceState.PROVISIONING: 8, WorkspaceState.DELETING: 4}
_LONGEST_LOOK: Final = 5.0
# What is no mistake of ours needs no stack to be understood, and formatting one takes its time.
_EXPECTED: Final = (MoorageError, OSError, Unusable, PassedBy)
_UNHEARD: Final = timedelta(seconds=15)
_BUSY: Final = timedelta(milliseconds=250)
_LONGEST_REASON: Final = 500

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Retries:
    """Seconds before failed work is tried again: doubling from the first to the longest."""

    first: float
    longest: float

    def delay(self, attempts: int) -> timedelta:
        """How long to wait after so many tries."""
        return timedelta(seconds=min(self.longest, self.first * 2.0 ** min(attempts - 1, 30)))


@dataclass(frozen=True, slots=True)
class _Task:
    """What is done about a workspace in that state."""

    provider: str
    state: WorkspaceState
    task: asyncio.Task[None]


class Worker:
    """One per instance; a workspace is worked on by one task at a time."""

    def __init__(
        self,
        instance: Instance,
        stores: tuple[WorkspaceStore, WorkStore],
        registry: Registry,
        execs: Execs,
        contents: tuple[Filling, SettingUp],
        changes: Changes,
        retries: Retries,
    ) -> None:
        """`changes` is told of each new state."""
        self._instance = instance
        self._workspaces, self._work = stores
        self._registry = registry
        self._execs = execs
        self._filling, self._setting_up = contents
        self._changes = changes
        self._retries = retries
        self._busy: dict[tuple[str, str], _Task] = {}
        self._woken = asyncio.Event()
        self._stopping = threading.Event()
        self._on_failed: list[Callable[[], None]] = []

    def wake(self) -> None:
        """There is new work."""
        self._woken.set()

    def on_failed(self, tell: Callable[[], None]) -> None:
        """Have this called when something could not be made: its remains count against no quota any more (W9)."""
        self._on_failed.append(tell)

    async def run(self) -> None:
        """Work until cancelled; what is left undone is found by the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                look = partial(self._look, group)
                await forever("looking for work on workspaces", look, longest_delay=_LONGEST_LOOK)
        finally:
            self._stopping.set()

    async def _look(self, group: asyncio.TaskGroup) -> None:
        await self._instance.until_serving()
        self._woken.clear()
        for key in await self._work.fail_overdue():
            self._end(key)
            self._changes.notify()
            # What is at work on it leaves nothing unfinished behind this, and then tells by itself.
            if key not in self._busy:
                self._failed()
        free = self._free()
        for (provider, state), count in free.items():
            before = {key: each.state for key, each in self._busy.items()}
            for workspace in await self._work.take_due(provider, state, count, _UNHEARD, self._busy):
                if not self._is_stale(workspace, before):
                    await self._begin(group, workspace)
        await self._wait(await self._work.next_due(free))

    def _free(self) -> dict[tuple[str, WorkspaceState], int]:
        """How many more may be worked on, where any: a provider that hangs holds up no other's workspaces."""
        at_work = Counter((each.provider, each.state) for each in self._busy.values())
        return {
            (provider.name, state): most - at_work[provider.name, state]
            for provider in self._registry.by_name()
            for state, most in _AT_ONCE.items()
            if at_work[provider.name, state] < most
        }

    def _is_stale(self, workspace: Workspace, before: Mapping[tuple[str, str], WorkspaceState]) -> bool:
        """Whether what it asks for was done while the row was read: it may tell of the time before that."""
        key = workspace.project, workspace.workspace_id
        return key not in self._busy and before.get(key) is workspace.state

    async def _begin(self, group: asyncio.TaskGroup, workspace: Workspace) -> None:
        key = workspace.project, workspace.workspace_id
        busy = self._busy.get(key)
        if busy is None:
            task = group.create_task(self._do(workspace))
            self._busy[key] = _Task(workspace.provider, workspace.state, task)
            task.add_done_callback(partial(self._done, key))
        elif busy.state is not workspace.state:
            # What is to be removed need not be made ready before.
            self._end(key)
            await self._work.put_off(workspace, _BUSY, workspace.state_reason)

    def _done(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._busy[key]
        if task.cancelled():
            self._failed()
        self._changes.notify()
        self.wake()

    def _end(self, key: tuple[str, str]) -> None:
        """Give up making it; its processes are dead when the task is."""
        busy = self._busy.get(key)
        if busy is not None and busy.state is WorkspaceState.PROVISIONING and not busy.task.cancelling():
            busy.task.cancel()

    def _failed(self) -> None:
        for tell in self._on_failed:
            tell()

    async def _wait(self, seconds: float | None) -> None:
        """Until woken, at most for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_LONGEST_LOOK if seconds is None else seconds, _LONGEST_LOOK)):
                await self._woken.wait()

    async def _do(self, workspace: Workspace) -> None:
        try:
            await self._try(workspace)
        except Exception as error:  # noqa: BLE001 (one workspace's trouble stops no other's work)
            _log.warning(
                "work on a workspace was not recorded", workspace=workspace.workspace_id, error=str(error)
            )

    async def _try(self, workspace: Workspace) -> None:
        try:
            if workspace.state is WorkspaceState.PROVISIONING:
                await self._provision(workspace)
            else:
                await self._remove(workspace)
        except Refused as error:
            await self._workspaces.settle(workspace, WorkspaceState.FAILED, state_reason=str(error))
            self._failed()
        except Exception as error:  # noqa: BLE001 (tried again, for as long as the state allows)
            await self._put_off(workspace, error)

    async def _provision(self, workspace: Workspace) -> None:
        provider = self._registry.get(workspace.provider)
        if not await self._setting_up.is_over(workspace, provider):
            await failpoint("workspace.provision.before_make")
            await provider.provision(workspace, self._instance.marker.deployment)
            await failpoint("workspace.provision.after_make")
            await self._filling.fill(workspace)
            await failpoint("workspace.provision.after_fill")
            await self._setting_up.run(workspace, provider)
        await self._workspaces.settle(workspace, WorkspaceState.READY)

    async def _remove(self, workspace: Workspace) -> None:
        """First the processes, then the directory, then the record of both."""
        execs = self._execs.of_workspace(workspace.project, workspace.workspace_id)
        for each in execs:
            each.end(not_ready(workspace, "it is being removed"))
        await self._execs.until_gone(execs)
        if workspace.origin is Origin.PROVISIONED:
            provider = self._registry.get(workspace.provider)
            deployment = self._instance.marker.deployment
            await failpoint("workspace.remove.before_remove")
            await provider.remove(workspace, deployment, self._stopping.is_set)
            await failpoint("workspace.remove.after_remove")
        await self._setting_up.forget(workspace)
        await self._workspaces.settle(workspace, WorkspaceState.DELETED)

    async def _put_off(self, workspace: Workspace, error: Exception) -> None:
        words = " ".join(str(error).split())[:_LONGEST_REASON]
        reason = texts.reason(words or type(error).__name__)
        if reason != workspace.state_reason:
            _log.warning(
                "work on a workspace failed, it is tried again",
                project=workspace.project,
                workspace=workspace.workspace_id,
                state=workspace.state,
                error=reason,
                exc_info=None if isinstance(error, _EXPECTED) else error,
            )
        delay = self._retries.delay(workspace.attempts)
        await self._work.put_off(workspace, delay, reason, anew=isinstance(error, PassedBy))
