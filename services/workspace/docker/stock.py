"""What the engine is, and which of an instance's images it has: looked at off the event loop, and kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import docker
from docker.errors import APIError

from services.workspace.docker.engine import Engine
from services.workspace.providers.registry import EngineState, Unasked

# An engine that works answers sooner; who asks is not to wait for one that does not.
_MOMENT: Final = 0.5
_ITS_OWN_FAULT: Final = 500


@dataclass(frozen=True, slots=True)
class _Told:
    version: str = ""
    missing: tuple[str, ...] = ()


class Stock:
    """Of one instance. `look` is called again and again, by one task."""

    def __init__(self, engine: Engine, images: Sequence[str]) -> None:
        """Nothing is asked yet."""
        self._engine = engine
        self._images = images
        self._told = _Told()
        self._waiting: list[asyncio.Future[None]] = []

    async def look(self) -> None:
        """Ask the engine; with one that does not answer what it told before stays."""
        waiting, self._waiting = self._waiting, []
        try:
            with contextlib.suppress(Unasked, APIError):
                self._told = await self._engine.call(partial(_ask, self._images))
        finally:
            for each in waiting:
                each.set_result(None)

    async def state(self) -> EngineState:
        """As a look finds it that begins now; as the last one did if this one takes more than a moment."""
        if not self._engine.cause:
            # Else it is looked at soon enough, and may take long to be missed again.
            looked = asyncio.get_running_loop().create_future()
            self._waiting.append(looked)
            self._engine.stir()
            await asyncio.wait([looked], timeout=_MOMENT)
        return self.last

    @property
    def last(self) -> EngineState:
        """As it answered last, and whether it does."""
        return EngineState(self._engine.address, self._told.version, self._told.missing, self._engine.cause)


def _ask(images: Sequence[str], client: docker.DockerClient) -> _Told:
    version: Any = client.version()
    return _Told(str(version["Version"]), tuple(image for image in images if _lacks(image, client)))


def _lacks(image: str, client: docker.DockerClient) -> bool:
    """Also what can be no image's name, which the engine refuses."""
    api: Any = client.api
    try:
        api.inspect_image(image)
    except APIError as error:
        if error.response is None or error.response.status_code >= _ITS_OWN_FAULT:
            raise
        return True
    return False
