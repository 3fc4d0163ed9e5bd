"""A turn as people watch it on a terminal: finished things are printed, and below them is what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
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
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            self._hide()
            self._output.on_aside = None

    def heard(self, *, held: bool) -> None:
        """Something came; with `held` nothing is drawn until the next time: somebody is asked something."""
        self._heard, self._held, self._scene.waits = time.monotonic(), held, ""
        if held:
            self._hide()

    async def _draw(self) -> None:
        while True:
            await asyncio.sleep(_FRAME)
            if self._held or self._scene.began is None:
                self._hide()
                continue
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
            live.stop()
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
