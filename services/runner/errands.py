"""What an agent has its client do during a turn: files and terminals, a bounded number at once (T6)."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from moorage.session.v1.session_pb2 import AgentSpec

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.runner.acp.errors import INVALID_REQUEST
from services.runner.acp.library import schema
from services.runner.acp.lines import Message
from services.runner.acp.requests import ClientRequest
from services.runner.acp.rpc import RequestError, mark_retrieved
from services.runner.clients.processes import Processes
from services.runner.clients.workspaces import Workspaces
from services.runner.endings import NOT_OURS, TurnAbandoned
from services.runner.executions import Execution
from services.runner.files import Files, refused
from services.runner.holds import Hold
from services.runner.places import Place
from services.runner.profiles import Profile
from services.runner.terminals import Surroundings, Terminals

_FILES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Site:
    place: Place
    files: Files
    terminals: Terminals
    # Of the turn, so that its trace goes on in what is done for it.
    context: contextvars.Context


class Errands:
    """One for a turn, used as `async with`: nothing of it goes on after the block."""

    def __init__(
        self, workspaces: Workspaces, processes: Processes, clock: Clock, execution: Execution, hold: Hold
    ) -> None:
        """Nothing is served before `open`."""
        self._workspaces = workspaces
        self._processes = processes
        self._clock = clock
        self._execution = execution
        self._hold = hold
        self._site: _Site | None = None
        self._tasks: set[asyncio.Task[Message]] = set()
        self._files_at_once = asyncio.Semaphore(_FILES_AT_ONCE)

    def open(self, place: Place, profile: Profile, agent: AgentSpec) -> None:
        """From now on this place is served; commands find there what the agent does."""
        surroundings = Surroundings({**profile.environment, **agent.environment}, profile.inherit_environment)
        lease = self._hold.lease
        self._site = _Site(
            place,
            Files(self._workspaces, place, lease),
            Terminals(self._processes, place, surroundings, lease, self._clock),
            contextvars.copy_context(),
        )

    def begin(self, request: ClientRequest) -> asyncio.Future[Message]:
        """Serve a request beside whatever else goes on; RequestError, here or there, refuses it."""
        site = self._site
        if site is None:
            raise RequestError(INVALID_REQUEST, "no turn is in progress")
        if self._execution.stopping and isinstance(request, schema.CreateTerminalRequest):
            raise RequestError(INVALID_REQUEST, "the turn is being stopped")
        task = asyncio.create_task(self._serve(site, request), context=site.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(mark_retrieved)
        return task

    def said(self, terminal_id: str) -> str:
        """The last that a command of this turn said; empty for an unknown terminal."""
        return self._site.terminals.said(terminal_id) if self._site else ""

    async def close(self) -> None:
        """Serve nothing more; returns when all commands are dead, or the hold knows that they may not be."""
        if site := await self._leave():
            try:
                all_dead = await site.terminals.close()
            except BaseException:
                await self._abandon(site)
                raise
            if not all_dead:
                self._hold.haunt(site.place)

    async def __aenter__(self) -> Self:
        """See `open`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where `close` was not reached the workspace ends the commands."""
        if site := await self._leave():
            await self._abandon(site)

    async def _leave(self) -> _Site | None:
        site, self._site = self._site, None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return site

    async def _abandon(self, site: _Site) -> None:
        if not await site.terminals.cut():
            self._hold.haunt(site.place)

    async def _serve(self, site: _Site, request: ClientRequest) -> Message:
        try:
            return await self._carry_out(site, request)
        except MoorageError as error:
            if error.reason in NOT_OURS:
                self._execution.hold.interrupt(TurnAbandoned.after(error))
            raise refused(error) from error

    async def _carry_out(self, site: _Site, request: ClientRequest) -> Message:
        match request:
            case schema.ReadTextFileRequest():
                async with self._files_at_once:
                    return await site.files.read(request)
            case schema.WriteTextFileRequest():
                async with self._files_at_once:
                    return await site.files.write(request)
            case schema.CreateTerminalRequest():
                return await site.terminals.create(request)
            case schema.TerminalOutputRequest():
                return site.terminals.output(request)
            case schema.WaitForTerminalExitRequest():
                return await site.terminals.wait(request)
            case schema.KillTerminalRequest():
                return await site.terminals.kill(request)
            case schema.ReleaseTerminalRequest():
                return await site.terminals.release(request)
