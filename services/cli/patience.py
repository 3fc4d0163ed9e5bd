"""Streams that are opened again when the connection breaks, for as long as patience lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import grpc

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.common.channels import cancelling

RequestT = TypeVar("RequestT")
T = TypeVar("T")

_PATIENCE = 60.0
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 1.0


class Cut(CommandFailed):
    """The connection was lost and could not be made again; the session goes on without us."""

    exit = Exit.CUT


class Patience:
    """How long a service that went away is waited for; `tell` is told once each time it does."""

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self._since: float | None = None
        self._wait = _FIRST_WAIT

    def reward(self) -> None:
        """The service answered."""
        self._since, self._wait = None, _FIRST_WAIT

    async def spend(self, why: str) -> None:
        """Wait before the next try; raises Cut when it was long enough."""
        if self._since is None:
            self._since = time.monotonic()
            self._tell(f"lost the session service ({why}); trying again for {_PATIENCE:.0f} s")
        if time.monotonic() - self._since > _PATIENCE:
            raise Cut(f"lost the session service: {why}")
        await asyncio.sleep(self._wait)
        self._wait = min(_LONGEST_WAIT, self._wait * 2)


async def resumed(
    open_stream: Callable[[], grpc.aio.UnaryStreamCall[RequestT, T]], patience: Patience
) -> AsyncGenerator[T, None]:
    """What comes on a stream, and on the ones that `open_stream` opens after it, until the reader leaves.

    Only a lost or unavailable service is tried again; raises Cut, or the call's own error.
    """
    while True:
        why = "it ended the stream"
        with cancelling(open_stream()) as stream:
            try:
                async for event in stream:
                    patience.reward()
                    yield event
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                why = error.details() or error.code().name
        await patience.spend(why)
