"""Whether containers can have their helper: found out off the event loop, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.common.logs import get_logger
from services.workspace.docker.exec.helper import HelperMissing
from services.workspace.docker.ground import Ground

# Nothing is served meanwhile.
_LONGEST_LOOK: Final = 5.0
_LOOK_AGAIN: Final = 1.0

_log: Final = get_logger(__name__)


class Readiness:
    """Of one instance. `cause` is why nothing can be executed in its containers; empty once it can."""

    def __init__(self, ground: Ground, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` puts the helper where containers have it from. It is not called yet."""
        self._ground = ground
        self._renew = renew
        self.cause = "this instance does not serve yet"
        self._unwell = asyncio.Event()

    async def look(self) -> str:
        """The cause, looked for anew unless there was none."""
        if self.cause and (cause := await self._find()) != self.cause:
            self.cause = cause
            if cause:
                _log.warning("containers cannot have their helper", cause=cause)
                self._unwell.set()
            else:
                _log.info("containers have their helper")
                self._unwell.clear()
        return self.cause

    async def keep(self) -> float:
        """Look again when a look has found a cause; the seconds until it should be called again."""
        await self._unwell.wait()
        await self.look()
        return _LOOK_AGAIN

    async def _find(self) -> str:
        try:
            async with asyncio.timeout(_LONGEST_LOOK):
                if barred := await asyncio.to_thread(self._ground.barred):
                    return barred
                await self._renew()
        except TimeoutError:
            return f"{self._ground.state_directory} does not answer: containers have their helper from there"
        except HelperMissing as error:
            return str(error)
        except OSError as error:
            return f"the helper of containers cannot be put in place: {error}"
        return ""
