"""What every server offers beside its services, and how it starts and stops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.wrappers_pb2 import StringValue
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.common.channels import Channels, open_channel
from services.common.errors import StartupRefused
from services.common.serving import ServiceServer
from services.common.settings import ServiceSettings
from tests.common.echo import SERVICE, Caller, Echo


async def reflect(channel: grpc.aio.Channel, **request: Any) -> Any:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(Any, channel))
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
    return await call.read()


async def test_reflection_lists_the_services(server: ServiceServer) -> None:
    async with open_channel(server.endpoint) as channel:
        response = await reflect(channel, list_services="")
    names = {service.name for service in response.list_services_response.service}
    assert names == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.channelz.v1.Channelz",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize("detail", ["ErrorInfo", "BadRequest", "RetryInfo"])
async def test_reflection_knows_the_details_of_errors(server: ServiceServer, detail: str) -> None:
    async with open_channel(server.endpoint) as channel:
        response = await reflect(channel, file_containing_symbol=f"google.rpc.{detail}")
    files = map(
        descriptor_pb2.FileDescriptorProto.FromString, response.file_descriptor_response.file_descriptor_proto
    )
    assert detail in {message.name for file in files for message in file.message_type}


async def test_channelz_shows_the_calls_of_the_server(server: ServiceServer, caller: Caller) -> None:
    await caller.call("Unary", "ok")
    async with open_channel(server.endpoint) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(cast(Any, channel))
        servers = (await stub.GetServers(channelz_pb2.GetServersRequest())).server
    assert sum(entry.data.calls_started for entry in servers) >= 1


async def test_a_second_listener_serves_its_own_services(settings: ServiceSettings, echo: Echo) -> None:
    server = ServiceServer(settings, name="test")
    journal = server.add_listener("127.0.0.1:0", "journal.internal")
    journal.add(echo.add_to, SERVICE)
    await server.start()
    port = journal.endpoint.removeprefix("journal.internal:")
    assert port.isdigit()
    assert port != server.endpoint.rpartition(":")[2]
    async with Channels() as channels:
        assert await Caller(channels.to(f"127.0.0.1:{port}")).call("Unary", "ok") == "ok"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await Caller(channels.to(server.endpoint)).call("Unary", "ok")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        health: Any = health_pb2_grpc.HealthStub(channels.to(server.endpoint))
        assert (await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))).status == 1
    await server.stop()


async def test_the_advertised_endpoint_gets_the_port_served_on(settings: ServiceSettings) -> None:
    advertised = settings.model_copy(update={"advertise": "owner.internal:0"})
    server = ServiceServer(advertised, name="test")
    await server.start()
    host, _, port = server.endpoint.partition(":")
    assert host == "owner.internal"
    assert int(port) > 0
    await server.stop()


async def test_a_port_in_use_is_refused_with_its_address(settings: ServiceSettings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = ServiceServer(settings.model_copy(update={"listen": address}), name="test")
        with pytest.raises(StartupRefused, match=f"cannot listen on {address}: Address already in use"):
            await server.serve()


async def test_two_servers_never_share_a_port(settings: ServiceSettings, server: ServiceServer) -> None:
    second = ServiceServer(settings.model_copy(update={"listen": server.endpoint}), name="test")
    with pytest.raises(StartupRefused, match="Address already in use"):
        await second.start()


async def test_an_address_of_another_machine_is_refused(settings: ServiceSettings) -> None:
    elsewhere = settings.model_copy(update={"listen": "192.0.2.1:7800"})
    with pytest.raises(StartupRefused, match=r"192.0.2.1:7800: Cannot assign requested address"):
        await ServiceServer(elsewhere, name="test").start()


async def test_messages_up_to_the_limit_pass(server: ServiceServer, caller: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.start("Unary")(StringValue(value="x" * (4 * 1024 * 1024 + 1)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await caller.call("Unary", "x" * (4 * 1024 * 1024 - 100)) == "measured"


async def pinged(endpoint: str, pings: int) -> bytes:
    """What a raw HTTP/2 client without calls gets that pings ten times a second."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    received = b""
    for _ in range(pings):
        writer.write(frame)
        await writer.drain()
        try:
            async with asyncio.timeout(0.1):
                while data := await reader.read(4096):
                    received += data
            break
        except TimeoutError:
            continue
    writer.close()
    return received


@pytest.mark.parametrize(("interval", "patient"), [(0.01, True), (60.0, False)])
async def test_clients_may_ping_as_often_as_the_setting_says(
    settings: ServiceSettings, interval: float, patient: bool
) -> None:
    server = ServiceServer(settings.model_copy(update={"min_client_ping_interval": interval}), name="test")
    await server.start()
    received = await pinged(server.endpoint, 8)
    await server.stop()
    assert (b"too_many_pings" not in received) is patient
    acknowledged = received.count(b"\x00\x00\x08\x06\x01")
    assert (acknowledged == 8) is patient
