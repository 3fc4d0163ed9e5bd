"""What tests of ownership look at: runner processes, what lives for a session, writes made again by hand."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import open_channel
from services.common.errors import name_of
from services.common.status import from_rpc_error
from services.workspace.exec.execs import SessionKey
from tests.conditions import eventually
from tests.gates import Gates
from tests.processes import is_alive
from tests.runner.parts import Stack
from tests.runner.remains import marked
from tests.system.service_process import ServiceProcess

LEASE = 3.0


class Runners:
    """Runner processes of a stack."""

    def __init__(self, stack: Stack, directory: Path, profiles: Path) -> None:
        self.gates = Gates(directory / "gates")
        self._stack = stack
        self._directory = directory
        self._profiles = profiles
        self._starts = 0

    @contextlib.asynccontextmanager
    async def start(self, name: str, *flags: str, journal: str = "") -> AsyncIterator[ServiceProcess]:
        """A start of this runner; it may have to wait for the lease of its name."""
        self._starts += 1
        process = ServiceProcess(
            "runner",
            self._directory / f"{name}.{self._starts}.log",
            *("--name", name, "--lease-ttl", str(LEASE), "--terminate-timeout", "0.5"),
            *("--owner-address", self._stack.owner.endpoint),
            *("--workspace-address", self._stack.workspace.endpoint),
            *("--journal-address", journal or self._stack.session.service.journal_endpoint),
            *("--profiles-directory", str(self._profiles), *flags),
            failpoints=self.gates.failpoints,
        )
        async with process:
            yield process


class Processes:
    """What lives for a session, by the kernel's table."""

    def __init__(self, stack: Stack, session_id: str) -> None:
        execs = stack.workspace.service.instance._execs._of(SessionKey("default", session_id))
        names = {each.exec_id for each in execs}
        self.pids = [pid for pid, marker in marked() if marker.exec_id in names]

    @property
    def alive(self) -> list[int]:
        """Which of those that lived then live now."""
        return [pid for pid in self.pids if is_alive(pid)]


async def logged(stack: Stack, name: str, number: int) -> None:
    """Wait until an agent has counted so far, into this file."""
    log = stack.root / name

    def is_counted_so_far() -> bool:
        return log.exists() and log.read_text().count("\n") >= number

    await eventually(is_counted_so_far, within=60, what=f"{number} was counted into {name}")


class Replay:
    """Writes that a holder has made, made again by hand; the reasons of their refusals."""

    def __init__(self, journal: grpc.aio.Channel, workspace: grpc.aio.Channel) -> None:
        self._journal: Any = JournalServiceStub(journal)
        self._workspace: Any = WorkspaceServiceStub(workspace)
        self.refused: Counter[str] = Counter()

    async def all(self, requests: Iterable[Any], session_id: str, workspace_id: str) -> None:
        """Those of the session, and with the newest of their grants what a workspace takes."""
        grant = None
        for request in requests:
            if isinstance(request, journal_pb2.AppendRecordsRequest):
                kept = [each for each in request.appends if each.session_id == session_id]
                await self._append(kept)
            elif request.session_id == session_id:
                grant = request.grant
                await self._call(
                    getattr(self._journal, type(request).__name__.removesuffix("Request")), request
                )
        place: dict[str, Any] = {"grant": grant, "project": "default", "workspace_id": workspace_id}
        claim = workspace_pb2.ClaimWorkspaceRequest(**place)
        await self._call(self._workspace.ClaimWorkspace, claim)
        write = workspace_pb2.WriteFileRequest(**place, path="replayed", data=b"x")
        await self._call(self._workspace.WriteFile, write)
        start = workspace_pb2.ExecStart(**place, command=["/bin/sh", "-c", "touch replayed"])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            call = self._workspace.Exec()
            await call.write(workspace_pb2.ExecRequest(start=start))
            await call.read()
        # Whether the token or the time is judged first, is open for what has to live on.
        assert from_rpc_error(refused.value).reason_name in ("STALE_OWNER", "LEASE_EXPIRED")

    async def _append(self, appends: list[journal_pb2.RecordAppend]) -> None:
        call = self._journal.AppendRecords()
        await call.write(journal_pb2.AppendRecordsRequest(appends=appends))
        for result in (await call.read()).results if appends else ():
            self.refused[name_of(result.error.reason)] += 1
        call.cancel()

    async def _call(self, method: Any, request: Any) -> None:
        try:
            await method(request, timeout=20)
            self.refused["NOT REFUSED"] += 1
        except grpc.aio.AioRpcError as error:
            self.refused[from_rpc_error(error).reason_name] += 1


@contextlib.asynccontextmanager
async def replaying(stack: Stack) -> AsyncIterator[Replay]:
    """To the real services."""
    async with (
        open_channel(stack.session.service.journal_endpoint) as journal,
        open_channel(stack.workspace.endpoint) as workspace,
    ):
        yield Replay(journal, workspace)
