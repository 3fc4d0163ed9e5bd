"""Channels to other services: balanced over all addresses, kept alive, traced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import grpc

from services.common.tracing import TracingChannel

_CallT = TypeVar("_CallT", bound=grpc.aio.Call)

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024

_SERVICE_CONFIG: Final = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that vanished without a word is noticed within 30 s, on idle streams too.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A service that comes back is found within seconds, not after the two minutes of the default.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
    # Services are reached directly, whatever proxy the environment names for the world outside.
    ("grpc.enable_http_proxy", 0),
]


def open_channel(target: str) -> grpc.aio.Channel:
    """A channel to HOST:PORT (or any gRPC target); connects when it is first used."""
    return TracingChannel(grpc.aio.insecure_channel(target, options=_OPTIONS))


class Channels:
    """One channel per endpoint, shared by all who call it."""

    def __init__(self) -> None:
        """Begin without channels."""
        self._channels: dict[str, grpc.aio.Channel] = {}

    def to(self, endpoint: str) -> grpc.aio.Channel:
        """The channel to HOST:PORT."""
        if endpoint not in self._channels:
            self._channels[endpoint] = open_channel(endpoint)
        return self._channels[endpoint]

    async def close(self) -> None:
        """Close all; calls on them are cancelled."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def __aenter__(self) -> Self:
        """For `async with`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()


@contextmanager
def cancelling(call: _CallT) -> Iterator[_CallT]:
    """A streaming call that ends with the block: `with cancelling(stub.Watch(request)) as call:`.

    grpc.aio does not cancel a stream whose reader is cancelled before the first message, nor one
    that is dropped: its server would go on until the next garbage collection.
    """
    try:
        yield call
    finally:
        call.cancel()
