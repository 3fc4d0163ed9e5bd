"""One address that a process serves on, and the gRPC server behind it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.addresses import Address
from services.common.errors import StartupRefused
from services.common.health import Health
from services.common.reflection import enable_reflection
from services.common.settings import ServiceSettings

Register = Callable[[grpc.aio.Server], None]

_INFRASTRUCTURE: Final = (
    health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
    channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name,
)
# Reflection gives what was imported: with these clients decode the details of a status.
_DETAILS: Final = error_details_pb2.DESCRIPTOR


class Listener:
    """Its own set of services on its own address; health, reflection and channelz on each."""

    def __init__(
        self,
        address: Address,
        advertise: Address | None,
        *,
        settings: ServiceSettings,
        health: Health,
        interceptor: grpc.aio.ServerInterceptor,
    ) -> None:
        """Nothing is bound before `start`."""
        self._address = address
        self._advertise = advertise
        self._settings = settings
        self._health = health
        self._interceptor = interceptor
        self._registrations: list[Register] = []
        self._names: list[str] = []
        self._server: grpc.aio.Server | None = None
        self._port = address.port

    @property
    def endpoint(self) -> str:
        """HOST:PORT at which others reach it; complete once it is started."""
        return str((self._advertise or self._address).with_port(self._port))

    def add(self, register: Register, *service_full_names: str) -> None:
        """Serve a servicer here: `register` adds it to a gRPC server, the names are its services'."""
        self._registrations.append(register)
        self._names.extend(service_full_names)
        self._health.add(*service_full_names)

    async def start(self) -> None:
        """Bind and serve; StartupRefused when the address cannot be had."""
        server = grpc.aio.server(interceptors=[self._interceptor], options=_options(self._settings))
        for register in self._registrations:
            register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        channelz.add_channelz_servicer(server)
        enable_reflection([*self._names, *_INFRASTRUCTURE], server)
        try:
            self._port = server.add_insecure_port(str(self._address))
        except RuntimeError as error:
            raise StartupRefused(f"cannot listen on {self._address}: {_why(self._address)}") from error
        await server.start()
        self._server = server

    async def stop(self, grace: float) -> None:
        """Take no new calls, give those in progress `grace` seconds, cancel the rest."""
        if self._server is not None:
            await self._server.stop(grace)


def _options(settings: ServiceSettings) -> list[tuple[str, Any]]:
    return [
        # Without this a second process shares the port and takes half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.enable_channelz", 1),
        # The defaults disconnect clients that ping more often than every five minutes: meshes and Go.
        ("grpc.http2.min_ping_interval_without_data_ms", round(settings.min_client_ping_interval * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        # A client that vanished without a word frees what its streams hold.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    ]


def _why(address: Address) -> str:
    """GRPC only says that it failed; ask the system for the cause."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return str(error.strerror or error)
    for family, kind, protocol, _, target in found:
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(target)
            except OSError as error:
                return os.strerror(error.errno) if error.errno else str(error)
    return "the address is in use or not of this machine"
