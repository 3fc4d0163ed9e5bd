"""A turn as people watch it on a terminal: finished things are printed, and below them is what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
from rich.console import Group
from rich.live import Live

from services.cli import echo
from services.cli.activity import Look, words_of
from services.cli.output import Output
from services.cli.scene import Scene

_FRAME = 0.1
# An agent that speaks every now and then is not asked about.
_QUIET = 0.8
_LOOK = 1.0


class LiveView:
    """Draws a scene, as long as there is a terminal that can show it and nobody is asked there."""

    def __init__(self, output: Output, scene: Scene, look: Look | None = None) -> None:
        """`look` gives the turn as it stands, for what the status line says."""
        self._output = output
        self._scene = scene
        self._look = look
        self._heard = time.monotonic()
        self._held = False
        self._live: Live | None = None
        self._show_typing = _nothing

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Within the block it is drawn; at its end it is gone."""
        if not self._output.is_lively:
            yield
            return
        works = [asyncio.create_task(self._draw())]
        if self._look is not None:
            works.append(asyncio.create_task(self._ask(self._look)))
        self._output.on_aside = self._hide
        try:
            yield
        except BaseException:
            await self._end(works)
            raise
        # A fault of the view is one of the program, as far as there is no other.
        for fault in await self._end(works):
            raise fault

    async def _end(self, works: Sequence[asyncio.Task[None]]) -> list[Exception]:
        """Nothing is drawn any more; gives what went wrong meanwhile."""
        for work in works:
            work.cancel()
        ends = await asyncio.gather(*works, return_exceptions=True)
        self._hide()
        self._output.on_aside = None
        return [end for end in ends if isinstance(end, Exception)]

    def heard(self, *, held: bool) -> None:
        """Something came; with `held` nothing is drawn until the next time: somebody is asked something."""
        self._heard, self._held, self._scene.waits = time.monotonic(), held, ""
        if held:
            self._hide()

    async def _draw(self) -> None:
        try:
            while True:
                await asyncio.sleep(_FRAME)
                self._draw_once()
        finally:
            # Whatever went wrong, what is typed can be seen.
            self._hide()

    def _draw_once(self) -> None:
        if self._held or self._scene.began is None:
            self._hide()
            return
        if self._live is None:
            self._show_typing = echo.silence()
            self._live = Live(
                console=self._output.console,
                get_renderable=self._rows,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.refresh()

    def _rows(self) -> Group:
        width, height = self._output.console.size
        return Group(*self._scene.rows(width, height, time.time()))

    def _hide(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            try:
                live.stop()
            finally:
                self._show_typing()

    async def _ask(self, look: Look) -> None:
        while True:
            await asyncio.sleep(_QUIET / 4)
            if time.monotonic() - self._heard < _QUIET:
                continue
            with contextlib.suppress(grpc.aio.AioRpcError):
                heard = self._heard
                seen = await look()
                if heard == self._heard:
                    self._scene.waits = words_of(seen)
            await asyncio.sleep(_LOOK)


def _nothing() -> None:
    """Typing is shown."""
