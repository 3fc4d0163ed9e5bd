"""Docker engines: the one that tests share, and private ones that can be killed, paused and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from tests.conditions import eventually
from tests.processes import freeze, is_alive

BUSYBOX = "moorage-test:busybox"
_SYSTEM = "unix:///var/run/docker.sock"
# As a mount table writes a path's separator; a directory's name in it needs nothing else.
_MOUNT_POINT = 1


def shared_engine() -> str:
    """The address of the engine that all tests share; skips without one."""
    address = os.environ.get("DOCKER_HOST", _SYSTEM)
    if not _has_busybox(address):
        pytest.skip(f"no Docker engine with the image {BUSYBOX} at {address}: make engine, make images")
    return address


@cache
def _has_busybox(address: str) -> bool:
    if not _listens(address):
        return False
    try:
        with contextlib.closing(docker.DockerClient(address, timeout=20)) as client:
            client.images.get(BUSYBOX)
    except docker.errors.DockerException:
        return False
    return True


def _listens(address: str) -> bool:
    """The library leaves the sockets open with which it did not reach anybody."""
    if not address.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


class PrivateEngine:
    """A dockerd with its own containerd, data and socket; it has no bridge, and one image: BUSYBOX."""

    def __init__(self, directory: Path) -> None:
        """`directory` must have a short path, as its socket is in it."""
        self.directory = directory
        self.address = f"unix://{directory}/sock"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of dockerd."""
        assert self._process is not None
        return self._process.pid

    @contextlib.contextmanager
    def client(self) -> Iterator[docker.DockerClient]:
        """A client of it; blocks."""
        with contextlib.closing(docker.DockerClient(self.address, timeout=30)) as client:
            yield client

    async def start(self) -> None:
        """Start it, again or for the first time; it answers when this returns."""
        (self.directory / "pid").unlink(missing_ok=True)
        await self._forget_containerd()
        with (self.directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                # In a network of its own: without a bridge it would remove that of the machine.
                *("unshare", "--net", "dockerd"),
                *("--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/exec"),
                *("--pidfile", f"{self.directory}/pid", "--host", self.address, "--shutdown-timeout", "2"),
                *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A signal for the group of the tests is none for it.
                start_new_session=True,
            )
        await eventually(self._answers, within=60, what=f"the private engine answers: {self.log()}")

    async def kill(self) -> None:
        """As if it crashed; its containers live on until it is started again."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """In order: its containers are stopped."""
        assert self._process is not None
        if self._process.returncode is None:
            self.resume()
            self._process.terminate()
            await self._process.wait()

    def pause(self) -> None:
        """It accepts connections, and answers nothing."""
        freeze(self.pid)

    def resume(self) -> None:
        """After a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """The end of what it says."""
        log = self.directory / "log"
        return log.read_text()[-2000:] if log.exists() else ""

    async def remove(self) -> None:
        """End it and all its containers, and remove what it had."""
        with contextlib.suppress(docker.errors.DockerException):
            await asyncio.to_thread(self._remove_containers)
        await self.stop()
        await asyncio.to_thread(self._clear)

    async def _forget_containerd(self) -> None:
        """It dies with dockerd, which would wait for a zombie of its name to answer."""
        named = self.directory / "exec" / "containerd" / "containerd.pid"
        if named.exists():
            pid = int(named.read_text())
            await eventually(lambda: not is_alive(pid), what="containerd has died with dockerd")
            named.unlink()

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log()
        return await asyncio.to_thread(self._ping)

    def _ping(self) -> bool:
        if not _listens(self.address):
            return False
        try:
            with self.client() as client:
                return bool(client.ping())
        except docker.errors.DockerException:
            return False

    def _remove_containers(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self.resume()
            with self.client() as client:
                for container in client.containers.list(all=True):
                    container.remove(force=True)

    def _clear(self) -> None:
        """What lives on after a kill has its directory in its arguments."""
        for pid in [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]:
            with contextlib.suppress(OSError):
                if f"{self.directory}/".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        lines = Path("/proc/mounts").read_text().splitlines()
        for point in reversed([line.split(" ")[_MOUNT_POINT] for line in lines]):
            if point.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "--lazy", point], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def private_engine() -> AsyncIterator[PrivateEngine]:
    """A started one, with the shared engine's BUSYBOX; removed in the end. Skips where none can be started."""
    image = await asyncio.to_thread(_saved_busybox, shared_engine())
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("no engine of our own can be started: that takes root and dockerd")
    engine = PrivateEngine(Path(tempfile.mkdtemp(prefix="dk-")))
    try:
        await engine.start()
        await asyncio.to_thread(_load, engine, image)
        yield engine
    finally:
        await engine.remove()


@cache
def _saved_busybox(address: str) -> bytes:
    with contextlib.closing(docker.DockerClient(address, timeout=60)) as client:
        return b"".join(client.images.get(BUSYBOX).save(named=True))


def _load(engine: PrivateEngine, image: bytes) -> None:
    with engine.client() as client:
        client.images.load(image)


def containers_of(client: docker.DockerClient, *labels: str) -> list[Container]:
    """Those with all labels, in any state, though some may go meanwhile."""
    found: list[Container] = client.containers.list(
        all=True, filters={"label": list(labels)}, ignore_removed=True
    )
    return found


def remove_all(client: docker.DockerClient, *labels: str) -> None:
    """Remove those with all labels. Fine when somebody else does, too."""
    for container in containers_of(client, *labels):
        try:
            container.remove(force=True)
        except docker.errors.APIError as error:
            if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
