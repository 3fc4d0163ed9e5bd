"""Stands between a service and its engine, and can be paused: to the service that is an engine that hangs.

Run as a process of its own, so that the engine itself, which others may use, goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PIECE: Final = 1 << 16
_SCHEME: Final = "unix://"


class Relay:
    """One that runs."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address: Final = address
        self._process = process

    def pause(self) -> None:
        """It takes and gives nothing any more when this returns, and keeps what is connected."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        """It goes on where it was."""
        self._process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def relay(engine: str) -> Iterator[Relay]:
    """In front of the engine at this address, a local socket's. Its own is short enough for a socket's."""
    with tempfile.TemporaryDirectory(prefix="relay-") as directory:
        path = f"{directory}/socket"
        command = (sys.executable, "-m", __name__, path, engine.removeprefix(_SCHEME))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                if not process.stdout.readline():
                    raise RuntimeError(f"no relay in front of {engine}")
                yield Relay(_SCHEME + path, process)
            finally:
                process.kill()


async def main(path: str, target: str) -> None:
    """Serve until killed; says a line when it does."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(target)
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    async with await asyncio.start_unix_server(connected, Path(path)) as server:
        print("ready", flush=True)
        await server.serve_forever()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_PIECE):
            target.write(data)
            await target.drain()
        # Each direction ends by itself: a command whose input is closed still says something.
        target.write_eof()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
