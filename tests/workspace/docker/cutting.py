"""Stands before an engine, and ends the connection of an exec before its helper has said a certain thing."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

_GIVEN = b"HTTP/1.1 101 "
_PIECE = 65536


class Cutter:
    """Passes everything on, unless it is `armed`: then it breaks one connection, as an engine's end does.

    That is an exec's, when its helper has said so many `pieces`: the first one is that it is ready, the
    second one that its command was started. What comes next is lost. If there are `words` it says them in
    its place, as an engine says in the place of an exec's output what it has to say about it.
    """

    def __init__(self, engine: str, address: str) -> None:
        self.address = address
        self.armed = False
        self.words = b""
        self.pieces = 0
        self._engine = engine.removeprefix("unix://")
        self._open: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}

    async def close(self) -> None:
        """End all connections."""
        served = list(self._open.values())
        for to_engine in self._open:
            to_engine.close()
        await asyncio.gather(*served)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one of its ends is closed."""
        from_engine, to_engine = await asyncio.open_unix_connection(self._engine)
        there = asyncio.create_task(_copy(reader, to_engine))
        served = self._open[to_engine] = asyncio.get_running_loop().create_future()
        said, is_given = b"", False
        try:
            while data := await from_engine.read(_PIECE):
                if self.armed and data.startswith(_GIVEN):
                    self.armed, is_given = False, True
                said += data if is_given else b""
                if _pieces(said) > self.pieces:
                    writer.write(_framed(self.words))
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            # Who called is gone.
            pass
        finally:
            there.cancel()
            to_engine.close()
            writer.close()
            await asyncio.wait({there})
            del self._open[to_engine]
            served.set_result(None)


def _pieces(said: bytes) -> int:
    """How many have begun, after the engine's own answer."""
    pieces, rest = 0, said.partition(b"\r\n\r\n")[2]
    while rest:
        pieces, rest = pieces + 1, rest[8 + int.from_bytes(rest[4:8]) :]
    return pieces


def _framed(words: bytes) -> bytes:
    return b"\x01\0\0\0" + len(words).to_bytes(4) + words if words else b""


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@contextlib.asynccontextmanager
async def cut_off(engine: str) -> AsyncIterator[Cutter]:
    """Listens for the length of the block, at an address of its own."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as directory:
        path = Path(directory, "engine")
        cutter = Cutter(engine, f"unix://{path}")
        server = await asyncio.start_unix_server(cutter.serve, path)
        try:
            async with server:
                yield cutter
        finally:
            await cutter.close()
