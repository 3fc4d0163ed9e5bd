"""Starts commands in containers through the engine: what the fork server is on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import docker
from docker.errors import APIError

from services.common.logs import get_logger
from services.common.validation import mint_id
from services.workspace.docker.exec.connection import Connection
from services.workspace.docker.exec.ending import clear, until_dead
from services.workspace.docker.exec.handover import Handover
from services.workspace.docker.exec.helper import HELPER_PATH, is_missing
from services.workspace.docker.exec.mount import Mount, Seen
from services.workspace.docker.exec.process import DockerProcess, NoHelper
from services.workspace.exec.marker import Marker
from services.workspace.exec.process import StartMissed
from services.workspace.providers.registry import Unasked

if TYPE_CHECKING:
    from services.workspace.exec.process import Outcome

T = TypeVar("T")

_READY_TIMEOUT: Final = 15.0

_log: Final = get_logger(__name__)


class Unheard(Unasked):
    """No helper says that it is ready."""


class Unfit(Unheard):
    """The container has no helper, or one of another version."""


class Engine(Protocol):
    """Where blocking calls of the engine are made, off the event loop."""

    async def call(self, work: Callable[[docker.DockerClient], T]) -> T:
        """Its result. Errors of the library come through, and it ends when the engine does not answer."""
        ...


class Helpers:
    """Of one instance. `prepare` comes before anything is started."""

    def __init__(self, engine: Engine, lives_until: Callable[[], float]) -> None:
        """`lives_until`: the second of the boot clock until which the instance may have processes."""
        self._engine = engine
        self._lives_until = lives_until
        self._marker: Marker | None = None

    def prepare(self, marker: Marker) -> None:
        """What helpers carry in their arguments; those of earlier starts are killed by the first new one."""
        self._marker = marker

    async def clear(self, container_ids: Iterable[str]) -> None:
        """End what earlier starts of this instance have left in these containers, or log that it is not known.

        They end by themselves when their start is gone (end of file), at the latest when its lease is
        over, which it is before there is another start; this is to see it.
        """
        if self._marker is not None:
            prefix = self._marker.instance_prefix
            await asyncio.gather(*(self._clear(container_id, prefix) for container_id in container_ids))

    async def _clear(self, container_id: str, prefix: str) -> None:
        try:
            await clear(self._engine, container_id, prefix)
        except Exception as error:  # noqa: BLE001 (an engine that is away keeps nothing else from being served)
            _log.warning("a container was not looked into", container=container_id, error=str(error))

    async def spawn(
        self, container_id: str, mount: Mount, directory: str, terminal: tuple[int, int] | None
    ) -> DockerProcess:
        """A helper in the container that waits for a command. Elsewhere, Unheard, and errors of the engine.

        The helper itself has seen the mount, so the command will run in no container that was started
        over another one since. `directory` is an absolute path in the container, `terminal` is
        (columns, rows).
        """
        if self._marker is None:
            raise Unasked("this instance does not serve yet")
        name = self._marker.of(mint_id("h")).text
        self._require()
        async with self._connected(container_id, name) as connection:
            # Its first words end what other starts have in there: those of a successor, if it was frozen meanwhile.
            self._require()
            process = DockerProcess(
                connection,
                mount.path,
                directory,
                terminal,
                self._lives_until,
                partial(self._kill_left, container_id, name),
            )
            mount.check(await _ready(process))
            return process

    def _require(self) -> None:
        if self._lives_until() <= time.clock_gettime(time.CLOCK_BOOTTIME):
            raise Unasked("this instance does not serve any more")

    @contextlib.asynccontextmanager
    async def _connected(self, container_id: str, name: str) -> AsyncIterator[Connection]:
        """Closed when the block is not left in order."""
        found = await self._open(container_id, [HELPER_PATH, "run", name])
        connection = Connection()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, found)
            yield connection
        except BaseException:
            connection.close()
            found.close()
            raise

    async def _open(self, container_id: str, command: Sequence[str]) -> socket.socket:
        handover = Handover()
        try:
            return await self._engine.call(partial(handover.open, container_id, command))
        except (APIError, Unasked) as error:
            handover.abandon()
            if is_missing(str(error)):
                raise Unfit(str(error)) from error
            raise
        except BaseException:
            # A thread that is still at it finds that nobody waits any more.
            handover.abandon()
            raise

    async def _kill_left(self, container_id: str, name: str, told: float) -> Outcome | None:
        return await until_dead(self._engine, container_id, name, told)


async def _ready(process: DockerProcess) -> Seen:
    """What the helper has seen. Until it says so nothing of the command can have run."""
    try:
        async with asyncio.timeout(_READY_TIMEOUT):
            return await asyncio.shield(process.ready)
    except TimeoutError:
        raise Unheard("the helper in the container does not answer") from None
    except NoHelper as error:
        raise Unfit(str(error)) from error
    except StartMissed as error:
        raise Unheard(str(error)) from error
