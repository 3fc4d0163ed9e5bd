"""Commands that run for an agent in its workspace: the protocol's terminals (T6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

from moorage.workspace.v1.workspace_pb2 import ExecStart

from services.common.clock import Clock
from services.common.telemetry import current_traceparent
from services.common.validation import mint_id
from services.fencing.leases import HeldLease
from services.runner.acp.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND
from services.runner.acp.library import schema
from services.runner.acp.lines import Message
from services.runner.acp.rpc import RequestError
from services.runner.clients.processes import Process, ProcessEnd, Processes
from services.runner.files import absolute
from services.runner.interrupts import time_limit
from services.runner.pipes import TextTail, last_of
from services.runner.places import Place

MAX_TERMINALS: Final = 16
MAX_OUTPUT_BYTES: Final = 1024 * 1024
MAX_SAID_BYTES: Final = 64 * 1024
MAX_START_BYTES: Final = 1024 * 1024
# After a KILL only the workspace itself can be late.
_KILL_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command finds: its variables, and the names of those of the instance that it inherits."""

    variables: Mapping[str, str]
    inherited: tuple[str, ...]


class Terminal:
    """One command without input; what it says on either output is kept together, the last of it."""

    def __init__(self, process: Process, running: AsyncExitStack, output: TextTail) -> None:
        """`running` ends the process, if nothing else has."""
        self.output: Final = output
        self._process = process
        self._running = running
        self._reading = asyncio.create_task(self._read())

    @property
    def end(self) -> ProcessEnd | None:
        """How it ended, once it has and all its output is kept."""
        return self._process.end if self._reading.done() else None

    async def started(self) -> None:
        """Return when it runs; raises what the workspace says when it cannot."""
        await self._process.started()
        with suppress(ConnectionError):
            await self._process.close_stdin()

    async def wait(self) -> ProcessEnd:
        """How it ended, once it has."""
        await asyncio.shield(self._reading)
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill its process group, if it still runs."""
        with suppress(ConnectionError):
            await self._process.signal("SIGKILL")

    async def close(self, clock: Clock) -> bool:
        """Kill it and let go of it; whether its death was seen."""
        try:
            with suppress(TimeoutError):
                async with time_limit(clock, _KILL_TIMEOUT, TimeoutError):
                    await self.kill()
                    await self.wait()
        finally:
            await self.cut()
        return self._process.end is not None and self._process.end.confirmed

    async def cut(self) -> None:
        """Let go of it: the workspace ends what is left."""
        if self._process.end is None:
            self._process.cut()
            self._process.discard()
            await self._process.wait()
        await self._running.aclose()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        while data := await self._process.read():
            self.output.add(data)
        self.output.end()


class Terminals:
    """The terminals of one turn, by id."""

    def __init__(
        self, processes: Processes, place: Place, surroundings: Surroundings, lease: HeldLease, clock: Clock
    ) -> None:
        """Commands run under the lease (F5), with the agent's surroundings."""
        self._processes = processes
        self._place = place
        self._surroundings = surroundings
        self._lease = lease
        self._clock = clock
        self._terminals: dict[str, Terminal] = {}
        # Tasks of their own, so that a caller who goes away leaves no command of which nobody knows.
        self._closings: dict[asyncio.Task[None], Terminal] = {}
        self._all_dead = True
        # What released ones said, for the transcript.
        self._said: dict[str, str] = {}

    def said(self, terminal_id: str) -> str:
        """The last that a command said, also of a released one; empty for an unknown one."""
        terminal = self._terminals.get(terminal_id)
        return last_of(terminal.output.text, MAX_SAID_BYTES) if terminal else self._said.get(terminal_id, "")

    async def create(self, request: schema.CreateTerminalRequest) -> Message:
        """Start a command; without arguments it is a line for the shell."""
        if len(self._terminals) + len(self._closings) >= MAX_TERMINALS:
            raise RequestError(
                INVALID_REQUEST, f"{MAX_TERMINALS} terminals are open; release one before the next"
            )
        terminal_id = mint_id("terminal")
        terminal = self._terminals[terminal_id] = await self._open(request)
        try:
            await terminal.started()
        except BaseException:
            await asyncio.shield(self._close(terminal_id))
            raise
        return {"terminalId": terminal_id}

    def output(self, request: schema.TerminalOutputRequest) -> Message:
        """The last of what it said, and how it ended if it has."""
        terminal = self._find(request.terminal_id)
        told: Message = {"output": terminal.output.text, "truncated": terminal.output.truncated}
        return {**told, "exitStatus": _status(terminal.end)} if terminal.end else told

    async def wait(self, request: schema.WaitForTerminalExitRequest) -> Message:
        """How it ended, once it has."""
        end = await self._find(request.terminal_id).wait()
        if end.error is not None:
            raise RequestError(INTERNAL_ERROR, f"the command was lost: {end.error}") from end.error
        return _status(end)

    async def kill(self, request: schema.KillTerminalRequest) -> Message:
        """Kill the command; its output stays."""
        await self._find(request.terminal_id).kill()
        return {}

    async def release(self, request: schema.ReleaseTerminalRequest) -> Message:
        """Kill the command, if it runs, and forget it."""
        self._find(request.terminal_id)
        await asyncio.shield(self._close(request.terminal_id))
        return {}

    async def close(self) -> bool:
        """Release all; whether all that were ever created are known to be dead."""
        for terminal_id in list(self._terminals):
            self._close(terminal_id)
        await asyncio.gather(*self._closings, return_exceptions=True)
        return self._all_dead

    async def cut(self) -> bool:
        """Let go of all at once, the workspace ends them; whether there was nothing to be ended."""
        left = [*self._terminals.values(), *self._closings.values()]
        self._terminals.clear()
        for closing in list(self._closings):
            closing.cancel()
        await asyncio.gather(*self._closings, return_exceptions=True)
        await asyncio.gather(*(terminal.cut() for terminal in left))
        return self._all_dead and not left

    def _find(self, terminal_id: str) -> Terminal:
        if terminal := self._terminals.get(terminal_id):
            return terminal
        raise RequestError(RESOURCE_NOT_FOUND, f"there is no terminal {terminal_id}")

    def _close(self, terminal_id: str) -> asyncio.Task[None]:
        self._said[terminal_id] = self.said(terminal_id)
        if len(self._said) > MAX_TERMINALS:
            del self._said[next(iter(self._said))]
        terminal = self._terminals.pop(terminal_id)
        closing = asyncio.create_task(self._see_dead(terminal))
        self._closings[closing] = terminal
        closing.add_done_callback(self._closings.pop)
        return closing

    async def _see_dead(self, terminal: Terminal) -> None:
        dead = False
        try:
            dead = await terminal.close(self._clock)
        finally:
            self._all_dead = self._all_dead and dead

    async def _open(self, request: schema.CreateTerminalRequest) -> Terminal:
        """Does not suspend."""
        running = AsyncExitStack()
        starting = self._processes.start(self._place.endpoint, self._start_of(request), merged=True)
        process = await running.enter_async_context(starting)
        running.enter_context(self._lease.followed_by(process.show))
        wanted = request.output_byte_limit
        kept = MAX_OUTPUT_BYTES if wanted is None else min(wanted, MAX_OUTPUT_BYTES)
        return Terminal(process, running, TextTail(kept))

    def _start_of(self, request: schema.CreateTerminalRequest) -> ExecStart:
        variables = dict(self._surroundings.variables)
        if traceparent := current_traceparent():
            variables["TRACEPARENT"] = traceparent
        variables |= {variable.name: variable.value for variable in request.env or ()}
        start = ExecStart(
            grant=self._lease.grant,
            project=self._place.project,
            workspace_id=self._place.workspace_id,
            command=_command(request),
            directory=absolute("cwd", request.cwd) if request.cwd else self._place.root,
            environment=variables,
            inherit_environment=self._surroundings.inherited,
        )
        if (size := start.ByteSize()) > MAX_START_BYTES:
            raise RequestError(
                INVALID_PARAMS, f"the command has {size} bytes, at most {MAX_START_BYTES} can be sent"
            )
        return start


def _command(request: schema.CreateTerminalRequest) -> list[str]:
    """Some agents send a program and its arguments, others a line as people type it."""
    if request.args:
        return [request.command, *request.args]
    return ["/bin/sh", "-c", request.command]


def _status(end: ProcessEnd) -> Message:
    return {"exitCode": end.exit_code, "signal": end.signal or None}
