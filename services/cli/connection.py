"""Calls to the session service as a project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.common.channels import open_channel
from services.common.project import PROJECT_KEY

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

_PATIENCE = 10.0
_READY = grpc.ChannelConnectivity.READY
_FAILED = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)


class NotReachable(CommandFailed):
    """Nothing answers at the address."""

    exit = Exit.CUT

    def __init__(self, target: str, named: str = "") -> None:
        hint = "`moorage up` starts one for the current directory; --address names another one"
        if named:
            hint = f"the address comes from {named}: does a session service run there, and can it be reached from here?"
        super().__init__(f"no session service answers at {target}", hint=hint)


@dataclass(frozen=True, slots=True)
class Connection:
    """A stub of the session service, the metadata to send with each call, and the address that is called."""

    sessions: SessionServiceAsyncStub
    metadata: tuple[tuple[str, str], ...]
    target: str = ""


@asynccontextmanager
async def connect(target: str, project: str, named: str = "") -> AsyncIterator[Connection]:
    """A connection for the block. Raises NotReachable at once when nothing listens there.

    `named` says by what the address was named, if somebody did.
    """
    channel = open_channel(target)
    try:
        await _reach(channel, target, named)
        yield Connection(SessionServiceStub(channel), ((PROJECT_KEY, project),), target)
    finally:
        await channel.close()


async def _reach(channel: grpc.aio.Channel, target: str, named: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            while (state := channel.get_state(try_to_connect=True)) is not _READY:
                if state in _FAILED:
                    raise NotReachable(target, named)
                await channel.wait_for_state_change(state)
    except TimeoutError:
        raise NotReachable(target, named) from None
