"""The other ends of a connection in tests: a local process as stream, a handler that remembers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from services.runner.acp.connection import DEFAULT_LIMITS, AgentConnection
from services.runner.acp.elicitation import Elicitation, ElicitationOutcome
from services.runner.acp.lines import Message
from services.runner.acp.messages import PermissionOutcome, PermissionRequest, SessionUpdate
from services.runner.acp.requests import ClientRequest
from services.runner.acp.transport import TransportLimits
from services.runner.profiles import load_profiles, resolve_command

TIMEOUT = 20.0
ROGUES = Path(__file__).with_name("rogues")


class ProcessStream:
    """A local process; a write returns when the pipe has taken all of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout
        self.process = process
        self.bytes_read = 0
        self._stdin, self._stdout = process.stdin, process.stdout
        self._stdin.transport.set_write_buffer_limits(high=0)

    async def read(self) -> bytes:
        data = await self._stdout.read(65536)
        self.bytes_read += len(data)
        return data

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()


class Listener:
    """Remembers all updates; holds them back while `gate` is not set; fails where an error is set."""

    def __init__(self) -> None:
        self.updates: list[SessionUpdate] = []
        self.requests: list[PermissionRequest] = []
        self.answer: Callable[[PermissionRequest], Awaitable[PermissionOutcome]] = _no_answer
        self.elicitations: list[Elicitation] = []
        self.fill_in: Callable[[Elicitation], Awaitable[ElicitationOutcome]] = _not_filled_in
        self.served: list[ClientRequest] = []
        self.serve: Callable[[ClientRequest], Awaitable[Message]] = _not_served
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()

    async def on_update(self, update: SessionUpdate) -> None:
        self.updates.append(update)
        self.arrived.set()
        await self.gate.wait()
        if self.error:
            raise self.error

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        self.requests.append(request)
        self.arrived.set()
        await self.gate.wait()
        return self.answer(request)

    async def on_elicitation(self, request: Elicitation) -> Awaitable[ElicitationOutcome]:
        self.elicitations.append(request)
        self.arrived.set()
        await self.gate.wait()
        return self.fill_in(request)

    async def on_request(self, request: ClientRequest) -> Awaitable[Message]:
        self.served.append(request)
        self.arrived.set()
        await self.gate.wait()
        return self.serve(request)

    async def until(self, condition: Callable[[Listener], object]) -> None:
        """Wait until what has arrived fulfils the condition."""
        async with asyncio.timeout(TIMEOUT):
            while not condition(self):
                self.arrived.clear()
                await self.arrived.wait()

    def text(self, kind: str = "agent_message_chunk") -> str:
        """All text of a kind, but not what was replayed."""
        live = [update for update in self.updates if update.kind == kind and not update.replayed]
        return "".join(update.raw["update"]["content"]["text"] for update in live)

    def kinds(self) -> list[str]:
        return [update.kind for update in self.updates]


async def _no_answer(request: PermissionRequest) -> PermissionOutcome:
    raise AssertionError(f"nobody expected the question {request.raw}")


async def _not_filled_in(request: Elicitation) -> ElicitationOutcome:
    raise AssertionError(f"nobody expected the form {request.raw}")


async def _not_served(request: ClientRequest) -> Message:
    raise AssertionError(f"nobody expected the request {request}")


@asynccontextmanager
async def running(
    *command: str, directory: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ProcessStream]:
    """A process in a group of its own, killed and reaped in the end."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=directory,
        env=environment,
        process_group=0,
    )
    stream = ProcessStream(process)
    try:
        yield stream
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Also closes the pipes.
        await process.communicate()


class Agent:
    """An agent process with a connection to it, and a native session once it is opened."""

    def __init__(self, stream: ProcessStream, limits: TransportLimits) -> None:
        self.stream = stream
        self.listener = Listener()
        self.connection = AgentConnection(stream, self.listener, limits)
        self.session_id = ""

    async def open(self, directory: Path) -> None:
        await self.connection.initialize(timeout=TIMEOUT)
        opened = await self.connection.new_session(str(directory), timeout=TIMEOUT)
        self.session_id = opened.id

    async def say(self, *lines: str) -> str:
        """Prompt and wait for the end; the stop reason."""
        prompt = self.connection.prompt(self.session_id, text_blocks(*lines))
        async with asyncio.timeout(TIMEOUT):
            return (await prompt.result).stop_reason


@asynccontextmanager
async def connected(
    *command: str,
    directory: Path,
    limits: TransportLimits = DEFAULT_LIMITS,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Agent]:
    """A started agent and its connection; nothing was said yet."""
    async with running(*command, directory=directory, environment=environment) as stream:
        agent = Agent(stream, limits)
        async with agent.connection:
            yield agent


def demo_command() -> list[str]:
    """As the profile says."""
    return resolve_command(load_profiles()["demo"])


def rogue_command(name: str, *arguments: str) -> list[str]:
    """One of the misbehaving agents."""
    return [sys.executable, "-I", "-S", str(ROGUES), name, *arguments]


def text_blocks(*lines: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": "\n".join(lines)}]
