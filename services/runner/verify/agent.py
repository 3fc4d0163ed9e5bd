"""An agent as a local process, and a client that watches it and grants it nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moorage.common.v1.turn_pb2 import ApprovalPolicy

from services.runner.acp.connection import AgentConnection
from services.runner.acp.elicitation import DECLINE, Elicitation, ElicitationOutcome
from services.runner.acp.errors import INVALID_REQUEST
from services.runner.acp.lines import Message
from services.runner.acp.messages import PermissionOutcome, PermissionRequest, SessionUpdate
from services.runner.acp.requests import ClientRequest
from services.runner.acp.rpc import RequestError
from services.runner.approvals import choose

_LAST_WORDS: Final = 500
_READ: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the agent is started, and how long it is waited for, in seconds."""

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    start_timeout: float
    timeout: float


class Watcher:
    """Remembers what the agent tells; refuses what it asks for."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.updates: list[SessionUpdate] = []
        self.spoke = asyncio.Event()

    async def on_update(self, update: SessionUpdate) -> None:
        """See AgentHandler."""
        self.updates.append(update)
        if update.kind == "agent_message_chunk" and not update.replayed:
            self.spoke.set()

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        """See AgentHandler."""
        return _settled(choose(ApprovalPolicy.APPROVAL_POLICY_DENY, request.options))

    async def on_elicitation(self, request: Elicitation) -> Awaitable[ElicitationOutcome]:
        """See AgentHandler."""
        declined: ElicitationOutcome = {"action": DECLINE}
        return _settled(declined)

    async def on_request(self, request: ClientRequest) -> Awaitable[Message]:
        """See AgentHandler."""
        raise RequestError(INVALID_REQUEST, "this client only looks on")


class LocalAgent:
    """A process in a group of its own; what it says on stderr is kept, the last of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """It runs."""
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("all three of its streams are needed")
        self.process: Final = process
        self.watcher: Final = Watcher()
        self.connection: Final = AgentConnection(self, self.watcher)
        self.last_words = b""
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._stdin.transport.set_write_buffer_limits(high=0)
        self._listening = asyncio.create_task(self._listen())

    async def read(self) -> bytes:
        """See ByteStream."""
        return await self._stdout.read(_READ)

    async def write(self, data: bytes) -> None:
        """See ByteStream."""
        self._stdin.write(data)
        await self._stdin.drain()

    @property
    def said(self) -> str:
        """The last line that it said on stderr, in brackets; empty without one."""
        lines = self.last_words.decode(errors="replace").strip().splitlines()
        return f" (it said: {lines[-1]})" if lines else ""

    async def exits(self, timeout: float) -> int | None:
        """Close its input and wait; its exit code, negative for a signal, None when it stays."""
        await self.connection.close()
        self._stdin.close()
        try:
            async with asyncio.timeout(timeout):
                return await self.process.wait()
        except TimeoutError:
            return None

    async def end(self) -> None:
        """Kill what is left of its group."""
        await self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._stdin.close()
        await self.process.wait()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        while data := await self._stderr.read(_READ):
            self.last_words = (self.last_words + data)[-_LAST_WORDS:]


@asynccontextmanager
async def started(wanted: Wanted) -> AsyncIterator[LocalAgent]:
    """The agent, listened to; raises OSError where it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *wanted.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=wanted.directory,
        env=dict(wanted.environment),
        process_group=0,
    )
    agent = LocalAgent(process)
    try:
        agent.connection.start()
        yield agent
    finally:
        await agent.end()


def group_of(pid: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = process.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(group) == pid and state not in "ZX":
                found.append(int(process.parent.name))
    return found


def _settled(value: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
