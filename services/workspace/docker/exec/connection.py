"""The connection of one exec: frames out, frames in, on the event loop."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from services.workspace.docker.exec import multiplexed
from services.workspace.docker.exec.frames import Nonsense, Reader, Report

_LONGEST_WORDS: Final = 500


class Listener(Protocol):
    """Who is told what the helper says."""

    def on_report(self, report: Report, payload: bytes) -> None:
        """A frame came."""
        ...

    def on_lost(self, words: str) -> None:
        """Nothing more will come; `words` are what the engine or the helper said in clear."""
        ...


class Connection(asyncio.Protocol):
    """It always reads: what may come is bounded by the windows."""

    def __init__(self) -> None:
        """Not connected, and nobody listens."""
        self._transport: asyncio.Transport | None = None
        self._listener: Listener | None = None
        self._demultiplexer = multiplexed.Demultiplexer()
        self._reader = Reader()
        self._words = b""

    def listen(self, listener: Listener) -> None:
        """Tell it from now on."""
        self._listener = listener

    def send(self, data: bytes) -> None:
        """Nothing when it is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """At once: the helper reads the end, and kills what is left."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            for stream, piece in self._demultiplexer.feed(data):
                self._take(stream, piece)
        except Nonsense as error:
            self._words += str(error).encode()[:_LONGEST_WORDS]
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._listener is not None:
            words = self._words.decode(errors="replace").strip()
            self._listener.on_lost(words)

    def _take(self, stream: int, piece: bytes) -> None:
        if stream != multiplexed.STDOUT:
            self._words = (self._words + piece)[:_LONGEST_WORDS]
            return
        for report, payload in self._reader.feed(piece):
            if self._listener is not None:
                self._listener.on_report(report, payload)
