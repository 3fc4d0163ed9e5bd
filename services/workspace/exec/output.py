"""Standard output and error of an exec, merged in the order in which they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final

from services.workspace.exec.process import ReadEnd, Streams

# Chunks of 64 KiB that are read ahead of the caller; the rest waits in the pipe, and then the command.
_AHEAD: Final = 2


class Channel(Enum):
    """Which stream a piece of output was written to."""

    STDOUT = "stdout"
    STDERR = "stderr"


Piece = tuple[Channel, bytes]
Write = Callable[[Channel, bytes], Awaitable[None]]


async def copy_output(streams: Streams, gone: asyncio.Future[Any], write: Write) -> None:
    """Write all output up to the last byte that the command, and all that it started, has written.

    `gone` is done when all of them are dead: what is in the pipes then is all there will be, even
    if somebody else has them open. `write` is never called twice at a time.
    """
    pieces: asyncio.Queue[Piece | None] = asyncio.Queue(_AHEAD)
    ends = [(Channel.STDOUT, streams.stdout)]
    if streams.stderr is not None:
        ends.append((Channel.STDERR, streams.stderr))
    async with asyncio.TaskGroup() as group:
        for channel, end in ends:
            group.create_task(_read(channel, end, gone, pieces))
        reading = len(ends)
        while reading:
            if (piece := await pieces.get()) is None:
                reading -= 1
            else:
                await write(*piece)


async def _read(
    channel: Channel, end: ReadEnd, gone: asyncio.Future[Any], pieces: asyncio.Queue[Piece | None]
) -> None:
    while True:
        nobody_writes = gone.done()
        data = end.read_now(nobody_writes=nobody_writes)
        if data:
            await pieces.put((channel, data))
        elif data == b"":
            break
        else:
            await end.wait(gone)
    await pieces.put(None)
