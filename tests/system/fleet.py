"""Owner in this process; session service, workspace instance and runners as processes, held at moments by gates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.databases import fetch
from tests.gates import Gates
from tests.processes import is_alive
from tests.runner.parts import FREE, Stack
from tests.runner.talks import Talks
from tests.system.service_process import ServiceProcess

# A Stop is given up on after this.
STOP_DEADLINE = 2.0
PATIENCE = 2.0
MARGIN = 1.0
_SESSION = (
    *("--stop-budget", "0.5", "--stop-kill-after", "0.5"),
    *("--admitted-patience", str(PATIENCE), "--close-patience", str(PATIENCE)),
    *("--overrun-margin", str(MARGIN), "--sweep-interval", "0.5", "--watchdog-interval", "0.5"),
    *("--service-lease", "3", "--fence-timeout", "1", "--shutdown-grace", "0.2"),
)
_RUNNER = ("--cancel-timeout", "0.5", "--terminate-timeout", "0.5", "--close-timeout", "0.2")


@dataclass
class Fleet:
    """Processes of one test; those started first are ended last."""

    database_url: str
    directory: Path
    stop_deadline: float = STOP_DEADLINE
    processes: dict[str, ServiceProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.directory / "root"
        self.root.mkdir()
        self.gates = Gates(self.directory / "gates")
        self.stack = Stack(self.database_url, self.root, self.directory / "state")
        self.workspace_address = ""
        self.addresses: dict[str, tuple[str, str]] = {}
        self._running = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.stack.owner.start()
        self._running.push_async_callback(self.stack.owner.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def start(self, name: str, *flags: str, listen: str = FREE, failpoints: str = "") -> ServiceProcess:
        """A process of the service `name`, or `name-more`; `failpoints` are its own, beside the gates."""
        service = name.partition("-")[0]
        process = ServiceProcess(
            service,
            self.directory / f"{name}.log",
            *flags,
            listen=listen,
            failpoints=f"{failpoints};{self.gates.failpoints}",
        )
        self.processes[name] = process
        return await self._running.enter_async_context(process)

    async def start_workspace(self) -> ServiceProcess:
        """The instance that carries all workspaces; its lease outlasts every pause of a test."""
        process = await self.start(
            "workspace",
            *("--database-url", self.database_url, "--owner-address", self.stack.owner.endpoint),
            *("--root", str(self.root), "--default-directory", str(self.root)),
            *("--state-directory", str(self.directory / "state"), "--lease-ttl", "60"),
        )
        await process.logged("ready")
        self.workspace_address = process.events("serving")[0]["endpoint"]
        return process

    async def start_session(self, name: str = "session") -> ServiceProcess:
        """A replica; one of a name that ran before serves where that did."""
        listen, journal = self.addresses.get(name, (FREE, FREE))
        before = len(self.processes[name].events("ready")) if name in self.processes else 0
        process = await self.start(
            name,
            *("--database-url", self.database_url, "--journal-listen", journal),
            *("--owner-address", self.stack.owner.endpoint, "--workspace-address", self.workspace_address),
            *("--stop-margin", str(self.stop_deadline - 1.0), *_SESSION),
            listen=listen,
        )
        await eventually(lambda: len(process.events("ready")) > before, within=60, what=f"{name} is ready")
        endpoints = [event["endpoint"] for event in process.events("serving")]
        self.addresses[name] = endpoints[-2], endpoints[-1]
        return process

    async def start_runner(
        self, name: str, *flags: str, session: str = "session", failpoints: str = ""
    ) -> ServiceProcess:
        """A runner that writes to the journal of one replica."""
        process = await self.start(
            f"runner-{name}",
            *("--name", name, "--owner-address", self.stack.owner.endpoint, *_RUNNER),
            *("--journal-address", self.addresses[session][1], "--workspace-address", self.workspace_address),
            *flags,
            failpoints=failpoints,
        )
        await process.logged("registered")
        return process

    @contextlib.asynccontextmanager
    async def talks(self, session: str = "session") -> AsyncIterator[Talks]:
        """A client of one replica."""
        async with open_channel(self.addresses[session][0]) as channel:
            yield Talks(channel)

    async def lease(self, session_id: str = "s") -> lease_pb2.Lease:
        """A session's lease as it stands."""
        async with open_channel(self.stack.owner.endpoint) as channel:
            request = lease_pb2.GetLeaseRequest(resource=f"projects/default/sessions/{session_id}")
            return (await LeaseServiceStub(channel).GetLease(request)).lease

    async def endings(self, session_id: str = "s") -> list[tuple[str, str, str]]:
        """State, reason, and how many end records, of each ended turn."""
        rows = await fetch(
            self.database_url,
            """
            SELECT turn_id, state, end_reason, (
                SELECT count(*) FROM session.records AS record
                WHERE record.session_id = turn.session_id AND record.turn_id = turn.turn_id
                  AND record.kind = 'turn_ended') AS ends
            FROM session.turns AS turn WHERE session_id = $1 AND end_time IS NOT NULL ORDER BY number
            """,
            session_id,
        )
        assert all(row["ends"] == 1 for row in rows), rows
        return [(row["turn_id"], row["state"], row["end_reason"]) for row in rows]


async def pid_of(talks: Talks, session_id: str = "s", turn_id: str = "t1") -> int:
    """The process id that the agent was asked for, once it has told it."""

    async def tells() -> bool:
        return "pid " in await talks.said(session_id, turn_id)

    await eventually(tells, within=30, what="the agent told its pid")
    return int((await talks.said(session_id, turn_id)).split("pid ")[1].split()[0])


async def dead(pid: int, within: float = 10.0) -> None:
    """Return when the process is dead."""
    await eventually(lambda: not is_alive(pid), within=within, what=f"process {pid} is dead")


async def settled(talks: Talks, session_id: str, command_id: str, within: float) -> session_pb2.Command:
    """The command with its outcome, in time."""
    request = session_pb2.GetCommandRequest(session_id=session_id, command_id=command_id, wait=True)
    async with asyncio.timeout(within):
        while True:
            answer = await talks.stub.GetCommand(request, timeout=within, wait_for_ready=True)
            if answer.command.HasField("settle_time"):
                return answer.command
