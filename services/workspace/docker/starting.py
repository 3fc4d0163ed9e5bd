"""Containers are started, and nothing is executed in one that has another directory than it should (W5).

An engine resolves the path of what it mounts by itself, some time after it was looked at. Whoever may
write above that path can put a link there in between, also each time that a container is started. So
the helper of each exec says what it has there, before it is told what to run.
"""

from __future__ import annotations

from functools import partial

from docker.errors import APIError

from services.common.failpoints import failpoint
from services.workspace.docker import containers
from services.workspace.docker.engine import Engine
from services.workspace.docker.equipment import Equipment
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.exec.mount import Elsewhere
from services.workspace.docker.exec.process import DockerProcess
from services.workspace.docker.ground import Root
from services.workspace.providers.registry import Refused, Unasked


class Starter:
    """Of one instance."""

    def __init__(self, engine: Engine, helpers: Helpers, equipment: Equipment) -> None:
        """Nothing is asked of the engine yet."""
        self._engine = engine
        self._helpers = helpers
        self._equipment = equipment

    async def start(self, container_id: str) -> None:
        """It runs, and has what it needs, when this returns. Unasked, OSError, HelperMissing, errors of the library."""
        await self._equipment.ready()
        await failpoint("workspace.docker.before_start")
        await self._engine.call(partial(containers.start, container_id))
        await failpoint("workspace.docker.after_start")

    async def look(self, container_id: str, root: Root) -> None:
        """Return if commands can be executed in it. Refused, stopped, if not in this directory. Unasked.

        `root` is held open meanwhile.
        """
        (await self.spawn(container_id, root, root.path, None)).close()

    async def spawn(
        self, container_id: str, root: Root, directory: str, terminal: tuple[int, int] | None
    ) -> DockerProcess:
        """What a command can be started with. Refused, stopped, as with `look`; StartFailed, Unasked, OSError."""
        await self._equipment.renewed()
        try:
            try:
                return await self._helpers.spawn(container_id, root.mount, directory, terminal)
            except Elsewhere as error:
                await self._engine.call(partial(containers.kill, container_id))
                raise Refused(str(error)) from error
        except APIError as error:
            # It does not run any more, say, which tells nothing about what it had.
            raise Unasked(f"the engine: {error.explanation}") from error
