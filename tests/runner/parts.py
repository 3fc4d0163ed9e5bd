"""Services in this process that a test can stop and start again, each at the address it had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from services.owner.config import OwnerSettings
from services.owner.server import build as build_owner
from services.runner.config import RunnerSettings
from services.runner.server import build as build_runner
from services.session.config import SessionSettings
from services.session.server import build as build_session
from services.workspace.config import WorkspaceSettings
from services.workspace.server import build as build_workspace

FREE = "127.0.0.1:0"


class Service(Protocol):
    """What a service's `build` makes."""

    @property
    def endpoint(self) -> str: ...

    def running(self) -> AbstractAsyncContextManager[object]: ...


class Part:
    """One service; its whole life is one task's."""

    def __init__(self, build: Callable[[Mapping[str, str]], Service]) -> None:
        """`build` is given the addresses that were served on before, by setting."""
        self._build = build
        self._addresses: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.service: Any = None

    @property
    def endpoint(self) -> str:
        return self._addresses["listen"]

    def move_to(self, endpoint: str) -> None:
        """Another process serves what this part did."""
        self._addresses["listen"] = endpoint

    async def start(self) -> Any:
        """Return when it is ready."""
        self._stop = asyncio.Event()
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        return self.service

    async def stop(self) -> None:
        """Return when it has ended; twice is fine."""
        self._stop.set()
        if self._task is not None:
            task, self._task = self._task, None
            await task

    async def _run(self, ready: asyncio.Future[None]) -> None:
        service = self.service = self._build(self._addresses)
        async with service.running():
            self._addresses["listen"] = service.endpoint
            if journal := getattr(service, "journal_endpoint", None):
                self._addresses["journal_listen"] = journal
            ready.set_result(None)
            await self._stop.wait()


@dataclass
class Stack:
    """Owner, workspace, session, and as many runners as a test wants; `changes` are settings by service."""

    database_url: str
    root: Path
    state: Path
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owner = Part(self._owner)
        self.workspace = Part(self._workspace)
        self.session = Part(self._session)
        self.runners: dict[str, Part] = {}

    async def start(self) -> None:
        """All but runners."""
        for part in (self.owner, self.workspace, self.session):
            await part.start()

    async def stop(self) -> None:
        """The callers first."""
        for part in (*self.runners.values(), self.session, self.workspace, self.owner):
            await part.stop()

    async def add_runner(self, name: str = "one", **settings: Any) -> Any:
        """A ready runner."""
        self.runners[name] = self.part(name, **settings)
        return await self.runners[name].start()

    def part(self, name: str, **settings: Any) -> Part:
        """A runner that the test itself starts and stops."""
        return Part(lambda listen: self.build_runner(name, listen, **settings))

    def build_runner(self, name: str, listen: Mapping[str, str], **settings: Any) -> Service:
        values = self._values("runner", listen)
        values |= {
            "name": name,
            "owner_address": self.owner.endpoint,
            "journal_address": self.session.service.journal_endpoint,
            "workspace_address": self.workspace.endpoint,
            "terminate_timeout": 0.5,
            "drain_timeout": 0.2,
            **settings,
        }
        return build_runner(RunnerSettings(**values))

    def _owner(self, listen: Mapping[str, str]) -> Service:
        return build_owner(OwnerSettings(**self._values("owner", listen), database_url=self.database_url))

    def _workspace(self, listen: Mapping[str, str]) -> Service:
        values = self._values("workspace", listen)
        values |= {"root": self.root, "default_directory": self.root, "state_directory": self.state}
        values |= {"owner_address": self.owner.endpoint, "database_url": self.database_url}
        return build_workspace(WorkspaceSettings(**values))

    def _session(self, listen: Mapping[str, str]) -> Service:
        values = self._values("session", {"journal_listen": FREE, **listen})
        values |= {"owner_address": self.owner.endpoint, "workspace_address": self.workspace.endpoint}
        return build_session(SessionSettings(**values, database_url=self.database_url))

    def _values(self, service: str, listen: Mapping[str, str]) -> dict[str, Any]:
        return {"listen": FREE, "shutdown_grace": 0.2, **listen, **self.changes.get(service, {})}
