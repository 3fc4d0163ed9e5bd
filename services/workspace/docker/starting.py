"""Containers are started, and nothing is executed in one before its directory was seen in it (W5).

An engine resolves the path of what it mounts by itself, some time after it was looked at. Whoever may
write above that path can put a link there in between, also each time that a container is started.
"""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import WeakValueDictionary

from docker.errors import APIError

from services.common.failpoints import failpoint
from services.workspace.docker import containers
from services.workspace.docker.containers import Container
from services.workspace.docker.engine import Engine
from services.workspace.docker.ground import Root
from services.workspace.providers.registry import Refused, Unasked


class Starter:
    """Of one instance. What earlier starts of it have seen is looked at once more."""

    def __init__(self, engine: Engine) -> None:
        """Nothing is asked of the engine yet."""
        self._engine = engine
        self._architecture = ""
        self._seen: dict[str, str] = {}
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def has_seen(self, container: Container) -> bool:
        """Whether it runs since it was seen with its directory: commands may be executed in it."""
        return container.running and self._seen.get(container.id) == container.started

    async def start(self, container_id: str, root: Root) -> None:
        """It runs with this directory, and has what it needs, when this returns; Refused, stopped, if not so.

        `root` is held open meanwhile. Unasked, and errors of the library.
        """
        async with self._starting.setdefault(container_id, asyncio.Lock()):
            found = await self._engine.call(partial(containers.inspect, container_id))
            if found is None or not self.has_seen(found):
                await self._start(container_id, root)

    def forget(self, container_id: str) -> None:
        """It is going."""
        self._seen.pop(container_id, None)

    async def _start(self, container_id: str, root: Root) -> None:
        if not self._architecture:
            self._architecture = await self._engine.call(containers.architecture)
        archive = containers.equipment(self._architecture, root.user)
        await self._engine.call(partial(containers.equip, container_id, archive))
        await failpoint("workspace.docker.after_helper")
        await failpoint("workspace.docker.before_start")
        await self._engine.call(partial(containers.start, container_id))
        await failpoint("workspace.docker.after_start")
        await self._see(container_id, root)

    async def _see(self, container_id: str, root: Root) -> None:
        try:
            started, place = await self._engine.call(partial(containers.look, container_id, root.path))
        except APIError as error:
            # It does not run any more, which says nothing about what it had.
            raise Unasked(f"the engine: {error.explanation}") from error
        if place != f"{root.device} {root.inode}":
            await self._engine.call(partial(containers.kill, container_id))
            raise Refused(f"{root.path} is another directory in its container than on this machine")
        self._seen[container_id] = started
