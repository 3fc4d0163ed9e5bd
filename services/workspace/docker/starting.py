"""Containers are started, and nothing is executed in one that has another directory than it should (W5).

An engine resolves the path of what it mounts by itself, some time after it was looked at. Whoever may
write above that path can put a link there in between, also each time that a container is started. So
the helper of each exec says what it has there, before it is told what to run.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from docker.errors import APIError

from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.workspace.docker import containers
from services.workspace.docker.containers import Container
from services.workspace.docker.engine import Engine
from services.workspace.docker.equipment import Equipment
from services.workspace.docker.exec.helpers import Helpers, Unfit, Unheard
from services.workspace.docker.exec.mount import Elsewhere
from services.workspace.docker.exec.process import DockerProcess
from services.workspace.docker.ground import Root
from services.workspace.providers.registry import Refused, Unasked, Unusable

Spawn = Callable[[], Awaitable[DockerProcess]]

_FOREIGN: Final = (
    "its container was made without the helper of this instance, by another version or for another state"
    " directory, and nothing can be executed in it: delete the workspace, and make another one"
)

_log: Final = get_logger(__name__)


class Starter:
    """Of one instance."""

    def __init__(self, engine: Engine, helpers: Helpers, equipment: Equipment) -> None:
        """Nothing is asked of the engine yet."""
        self._engine = engine
        self._helpers = helpers
        self._equipment = equipment

    async def start(self, container_id: str) -> None:
        """It runs, and has what it needs, when this returns.

        Unasked, OSError, HelperMissing, errors of the library.
        """
        await self._equipment.ready()
        await failpoint("workspace.docker.before_start")
        await self._engine.call(partial(containers.start, container_id))
        await failpoint("workspace.docker.after_start")

    async def look(self, container_id: str, root: Root) -> None:
        """Return if commands can be executed in it. Refused, stopped, if not in this directory.

        Else as `spawn`.

        `root` is held open meanwhile.
        """
        (await self.spawn(container_id, root, root.path, None)).close()

    async def spawn(
        self, container_id: str, root: Root, directory: str, terminal: tuple[int, int] | None
    ) -> DockerProcess:
        """What a command can be started with. Refused, stopped, as with `look`; Unusable, OSError.

        Nothing was started by it: whether the command can be, its `start` says.
        """
        await self.renew()
        spawn = partial(self._helpers.spawn, container_id, root.mount, directory, terminal)
        try:
            try:
                return await self._spawn(container_id, spawn)
            except Elsewhere as error:
                await self._engine.call(partial(containers.kill, container_id))
                raise Refused(str(error)) from error
        except APIError as error:
            # It does not run any more, say, which tells nothing about what it had.
            raise Unasked(f"the engine: {error.explanation}") from error

    async def renew(self) -> None:
        """Those that run have the helper of this start when this returns. HelperMissing, OSError."""
        await self._equipment.ready()

    async def _spawn(self, container_id: str, spawn: Spawn) -> DockerProcess:
        """Once more where somebody has changed or removed the helper. Unusable, and what `spawn` raises."""
        try:
            return await spawn()
        except Unfit:
            await self._equipment.ready()
        except Unheard:
            # The next one finds it as it should be.
            await self._equipment.ready()
            raise
        found = await self._engine.call(partial(containers.inspect, container_id))
        try:
            return await spawn()
        except Unfit as error:
            await self._have_equipped(found, error)
            raise

    async def _have_equipped(self, found: Container | None, error: Unfit) -> None:
        """Its mount is of a directory that is gone: a start makes it anew. Unusable if that cannot help."""
        if found is None:
            return
        if os.path.normpath(found.helper) != os.path.normpath(self._equipment.directory):
            raise Unusable(_FOREIGN) from error
        _log.warning("a container is stopped: its next start has the helper again", container=found.id)
        await self._engine.call(partial(containers.stop, found))
