"""A call to owner ends with an answer, an error kind, or the cancellation of its task, never otherwise."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from moorage.owner.v1 import lease_pb2

from services.common.errors import Cancelled, DeadlineExceeded, Unavailable
from services.fencing.client import LeaseClient
from tests.fencing.scripted import Context, ScriptedOwner, failing

REQUEST = lease_pb2.RenewLeasesRequest(holder="runner/1")


@pytest.fixture
def hanging(owner: ScriptedOwner) -> asyncio.Event:
    """Set when owner has received the call that it never answers."""
    received = asyncio.Event()

    async def hang(_context: Context) -> None:
        received.set()
        await asyncio.Event().wait()

    owner.before = [hang]
    return received


async def test_a_channel_that_is_closed_under_a_call_cancels_no_task(
    channel: grpc.aio.Channel, hanging: asyncio.Event
) -> None:
    """Else one lost connection would end a loop for ever, without a word."""
    calling = asyncio.ensure_future(LeaseClient(channel).renew(REQUEST, 30))
    await hanging.wait()
    await channel.close()
    with pytest.raises(Cancelled):
        await calling


async def test_a_cancelled_task_is_cancelled(channel: grpc.aio.Channel, hanging: asyncio.Event) -> None:
    calling = asyncio.ensure_future(LeaseClient(channel).renew(REQUEST, 30))
    await hanging.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_timeout_around_a_call_is_a_timeout(
    channel: grpc.aio.Channel, hanging: asyncio.Event
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await LeaseClient(channel).renew(REQUEST, 30)


async def test_each_call_has_its_own_patience(channel: grpc.aio.Channel, hanging: asyncio.Event) -> None:
    with pytest.raises(DeadlineExceeded):
        await LeaseClient(channel).renew(REQUEST, 0.2)


async def test_an_error_is_one_of_the_kinds(owner: ScriptedOwner, channel: grpc.aio.Channel) -> None:
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(Unavailable):
        await LeaseClient(channel).renew(REQUEST, 30)
