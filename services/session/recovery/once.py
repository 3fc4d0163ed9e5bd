"""Tasks beside a loop that looks for things to do, and finds them again until they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Final

from services.common.loops import Failures

# What waits for a workspace that does not answer costs nothing, and must not keep others waiting.
_CONCURRENT: Final = 512


class OncePerKey:
    """Work about sessions, or something else: much at once, and never twice about the same one."""

    def __init__(self, name: str) -> None:
        """`name` says in the log what is done."""
        self._failures = Failures(name)
        self._busy: set[Hashable] = set()
        self._room = asyncio.Semaphore(_CONCURRENT)

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._failures.count

    def start(self, tasks: asyncio.TaskGroup, key: Hashable, work: Coroutine[None, None, None]) -> None:
        """Do it beside the caller, unless something is being done about the same already."""
        if key in self._busy:
            work.close()
            return
        self._busy.add(key)
        tasks.create_task(self._do(key, work))

    async def _do(self, key: Hashable, work: Coroutine[None, None, None]) -> None:
        try:
            async with self._room:
                await work
        except Exception as error:  # noqa: BLE001 (logged; the next look finds it again)
            self._failures.report(error)
        else:
            self._failures.clear()
        finally:
            work.close()
            self._busy.discard(key)
