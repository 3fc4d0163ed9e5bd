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
from services.common.status import DETAILS_KEY

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

    def __init__(
        self, tell: Callable[[str], None] = lambda _: None, service: str = "the session service"
    ) -> None:
        self._tell = tell
        self._service = service
        self._since: float | None = None
        self._wait = _FIRST_WAIT

    def reward(self) -> None:
        """The service answered."""
        self._since, self._wait = None, _FIRST_WAIT

    async def spend(self, why: str) -> None:
        """Wait before the next try; raises Cut when it was long enough."""
        if self._since is None:
            self._since = time.monotonic()
            self._tell(f"lost {self._service} ({why}); trying again for {_PATIENCE:.0f} s")
        if time.monotonic() - self._since > _PATIENCE:
            raise Cut(f"lost {self._service}: {why}")
        await asyncio.sleep(self._wait)
        self._wait = min(_LONGEST_WAIT, self._wait * 2)

    async def spend_on(self, error: grpc.aio.AioRpcError) -> None:
        """The same after a call that failed; raises the error if trying again is no use."""
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise error
        await self.spend(_reason_of(error))


def _reason_of(error: grpc.aio.AioRpcError) -> str:
    """Why a service is unavailable: in its own words, if it answered."""
    answered = any(key == DETAILS_KEY for key, _ in error.trailing_metadata() or ())
    return (error.details() if answered else "") or "it does not answer"


async def resumed(
    open_stream: Callable[[], grpc.aio.UnaryStreamCall[RequestT, T]], patience: Patience
) -> AsyncGenerator[T, None]:
    """What comes on a stream, and on the ones that `open_stream` opens after it, until the reader leaves.

    Only a lost or unavailable service is tried again; raises Cut, or the call's own error.
    """
    while True:
        with cancelling(open_stream()) as stream:
            try:
                async for event in stream:
                    patience.reward()
                    yield event
            except grpc.aio.AioRpcError as error:
                await patience.spend_on(error)
                continue
        await patience.spend("it ended the stream")
