"""A workspace service as a process, an engine of its own, and what is none of the service's business."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import docker
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.workspace.docker.labels import PREFIX, Labels
from tests.conditions import eventually
from tests.databases import execute, fetch, fetch_value
from tests.engines import BUSYBOX, PrivateEngine
from tests.gates import Gates
from tests.workspace.instances import Client, Machine
from tests.workspace.real import ServiceProcess, started
from tests.workspace.sessions import Sessions, no_sessions, serving

# Short, for an engine that hangs; long enough for one that is busy.
ENGINE_TIMEOUT = 1.5
PATIENCE = 90.0
_DEPLOYMENT = f"{PREFIX}deployment"
_WORKSPACE = f"{PREFIX}workspace"


class Wharf:
    """One start of the service after the other, on the same engine, database and directories."""

    def __init__(self, machine: Machine, engine: PrivateEngine, gates: Gates, sessions: str) -> None:
        """`sessions` is where the session service answers."""
        self.machine = machine
        self.engine = engine
        self.gates = gates
        self.service: ServiceProcess
        self.client: Client
        self.supplied = _Supplied(machine.supplied("supplied"))
        self._sessions = sessions
        self._running = contextlib.AsyncExitStack()
        self._strangers: list[str] = []

    async def start(self, *flags: str) -> None:
        """Return when it is ready."""
        self.service = await self._running.enter_async_context(
            started(
                self.machine,
                *("--docker-host", self.engine.address, "--docker-images", json.dumps([BUSYBOX])),
                *("--docker-timeout", str(ENGINE_TIMEOUT), "--session-address", self._sessions),
                *(
                    "--first-retry",
                    "0.1",
                    "--longest-retry",
                    "0.5",
                    "--lease-ttl",
                    "2",
                    "--predecessor-grace",
                    "0.2",
                ),
                *flags,
                MOORAGE_FAILPOINTS=self.gates.failpoints,
            )
        )
        self.client = await self.service.client()

    async def restart(self, *flags: str) -> None:
        """Kill -9, and start it again."""
        await self.service.kill()
        await self.start(*flags)

    async def end(self) -> None:
        """End it, if it runs."""
        await self._running.aclose()

    @property
    def source(self) -> provision_pb2.WorkspaceSource:
        """The directory that was supplied, and must stay what it is."""
        path = provision_pb2.PathSource(directory=str(self.supplied.directory))
        return provision_pb2.WorkspaceSource(path=path)

    def directory(self, workspace_id: str) -> Path:
        """What is made for a workspace that has no such source."""
        return self.machine.state / "default" / workspace_id

    async def ask(self, workspace_id: str, **spec: Any) -> None:
        """Have one made."""
        wanted = provision_pb2.ProvisionSpec(provider="docker", **spec)
        await self.client.provision(workspace_id, provision=wanted)

    async def make(self, workspace_id: str, **spec: Any) -> workspace_pb2.Workspace:
        """One that is made."""
        await self.ask(workspace_id, **spec)
        return await self.settled(workspace_id)

    async def row(self, workspace_id: str) -> Any:
        """What is stored of one."""
        query = "SELECT * FROM workspace.workspaces WHERE workspace_id = $1"
        [row] = await fetch(self.machine.database_url, query, workspace_id)
        return row

    async def settled(self, workspace_id: str) -> workspace_pb2.Workspace:
        """One out of transition, whoever serves."""

        async def is_settled() -> bool:
            return (await self.row(workspace_id))["state"] not in ("PROVISIONING", "DELETING")

        await eventually(is_settled, within=PATIENCE, what=f"{workspace_id} is settled")
        return await self.client.get(workspace_id)

    async def noticed(self, workspace_id: str) -> None:
        """Its trouble is known, or there was none for it."""

        async def is_noticed() -> bool:
            row = await self.row(workspace_id)
            return bool(row["state_reason"]) or row["state"] not in ("PROVISIONING", "DELETING")

        await eventually(is_noticed, within=PATIENCE, what=f"the trouble of {workspace_id} is noticed")

    async def pass_time(self, workspace_id: str, interval: str) -> None:
        """As if it had been made earlier."""
        await execute(
            self.machine.database_url,
            "UPDATE workspace.workspaces SET created_at = created_at - $2::text::interval WHERE workspace_id = $1",
            workspace_id,
            interval,
        )

    async def deployment(self) -> str:
        """What our things are labelled with."""
        query = """
            SELECT to_hex(system_identifier) || '-' || (
                SELECT oid::text FROM pg_database WHERE datname = current_database()
            ) FROM pg_control_system()
        """
        return str(await fetch_value(self.machine.database_url, query))

    async def labels(self, workspace_id: str, generation: int = 1) -> Labels:
        """Of a workspace's container."""
        machine = self.machine
        return Labels(await self.deployment(), machine.instance_id, "default", workspace_id, generation)

    async def put(self, name: str, labels: dict[str, str] | None = None) -> str:
        """A container made behind the service's back; its id."""
        return await asyncio.to_thread(self._put, name, labels or {})

    async def place_stranger(self, name: str) -> None:
        """A container that is none of ours, and must stay what it is."""
        self._strangers.append(await self.put(name, {_WORKSPACE: "mine", "io.moorage.instance": "x"}))

    async def containers(self) -> dict[str, str]:
        """Those that carry our deployment's label: the id, and the workspace."""
        return await asyncio.to_thread(self._containers, f"{_DEPLOYMENT}={await self.deployment()}")

    async def exists(self, container: str) -> bool:
        """Whether a container is there, in whatever state."""
        return bool(await asyncio.to_thread(self._status, container))

    def remove(self, container: str) -> None:
        """Remove a container behind the service's back; blocks."""
        with self.engine.client() as client:
            client.containers.get(container).remove(force=True)

    @staticmethod
    def made(*workspace_ids: str) -> set[str]:
        """What is made for these, in directories of their own."""
        return {f"{each}{kind}" for each in workspace_ids for kind in ("", ".home", ".json")}

    def entries(self) -> set[str]:
        """All that lies where directories are made."""
        project = self.machine.state / "default"
        return {entry.name for entry in project.iterdir()} if project.exists() else set()

    async def judge(self) -> None:
        """After one pass there is what lives, nothing else, and what is not ours is as it was."""
        answer = await self.client.collect()
        assert not answer.unasked
        assert all(each.done for each in answer.garbage), answer
        rows = await fetch(
            self.machine.database_url,
            "SELECT workspace_id, state, root FROM workspace.workspaces WHERE state NOT IN ('DELETED', 'FAILED')",
        )
        live = {row["workspace_id"] for row in rows}
        assert {row["state"] for row in rows} <= {"READY"}, rows
        assert sorted((await self.containers()).values()) == sorted(live)
        made = {each["workspace_id"] for each in rows if each["root"] != str(self.supplied.directory)}
        assert self.entries() == made | {f"{each}{kind}" for each in live for kind in (".json", ".home")}
        for stranger in self._strangers:
            assert await asyncio.to_thread(self._status, stranger) == "created"
        self.supplied.judge()

    def _put(self, name: str, labels: dict[str, str]) -> str:
        with self.engine.client() as client:
            made = client.containers.create(BUSYBOX, ["true"], name=name, labels=labels, network_mode="none")
            return str(made.id)

    def _containers(self, label: str) -> dict[str, str]:
        with self.engine.client() as client:
            listed = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
            return {str(each.id): each.labels[_WORKSPACE] for each in listed}

    def _status(self, container: str) -> str:
        with self.engine.client() as client:
            return str(client.containers.get(container).status)


@contextlib.asynccontextmanager
async def wharf(
    machine: Machine, engine: PrivateEngine, sessions: Sessions | None = None
) -> AsyncIterator[Wharf]:
    """A ready one; its state directory is a small file system of its own, which can be filled."""
    machine.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(machine.state)], check=True)
    gates = Gates(machine.directory / "gates")
    try:
        async with serving(sessions or no_sessions()) as address:
            made = Wharf(machine, engine, gates, address)
            try:
                await made.start()
                yield made
            finally:
                await made.end()
                await asyncio.to_thread(_remove_containers, engine)
    finally:
        subprocess.run(["umount", "--lazy", str(machine.state)], check=True)


class _Supplied:
    """A directory that is none of Moorage's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "deep").mkdir()
        (directory / "work").write_text("mine")
        (directory / "deep" / "work").write_text("mine as well")
        (directory / "deep" / "link").symlink_to("../work")
        self._before = self._content()

    def judge(self) -> None:
        """It is what it was."""
        assert self._content() == self._before

    def _content(self) -> dict[Path, tuple[object, ...]]:
        """All that can be seen of it, but when somebody looked at it."""
        return {path: self._seen(path) for path in (self.directory, *self.directory.rglob("*"))}

    def _seen(self, path: Path) -> tuple[object, ...]:
        status = path.lstat()
        content = path.read_text() if path.is_file() else ""
        return (
            *(status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns),
            *(status.st_ctime_ns, content),
        )


def _remove_containers(engine: PrivateEngine) -> None:
    with engine.client() as client, contextlib.suppress(docker.errors.DockerException):
        for each in client.containers.list(all=True, ignore_removed=True):
            each.remove(force=True)


def unique(name: str) -> str:
    """A name that nobody has used."""
    return f"{name}-{secrets.token_hex(4)}"


def fill(directory: Path) -> Path:
    """Leave no room in the file system of a directory; the file that takes it."""
    ballast = directory / ".ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast
