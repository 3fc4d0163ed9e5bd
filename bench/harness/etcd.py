"""etcd as a reference for leases: one server, its data on our disk, called with our client library."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.harness.places import ROOT
from services.cli.child import tied
from services.cli.ports import choose
from services.common.channels import open_channel

_SERVICE: Final = "/etcdserverpb.Lease"
_PATIENCE: Final = 30.0
# The few messages that are used, by their fields' numbers; all are int64.
_MESSAGES: Final = {
    "LeaseGrantRequest": {"TTL": 1, "ID": 2},
    "LeaseGrantResponse": {"ID": 2, "TTL": 3},
    "LeaseRevokeRequest": {"ID": 1},
    "LeaseRevokeResponse": {},
    "LeaseKeepAliveRequest": {"ID": 1},
    "LeaseKeepAliveResponse": {"ID": 2, "TTL": 3},
}


def program() -> str | None:
    """Where etcd is, if it is."""
    ours = ROOT / "build" / "ci" / "bin" / "etcd"
    return str(ours) if os.access(ours, os.X_OK) else shutil.which("etcd")


class EtcdLeases:
    """etcd's leases."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._messages = _messages()
        self._grant = self._unary(channel, "LeaseGrant")
        self._revoke = self._unary(channel, "LeaseRevoke")
        self._keep_alive: Any = channel.stream_stream(
            f"{_SERVICE}/LeaseKeepAlive",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._messages["LeaseKeepAliveResponse"].FromString,
        )

    async def grant(self, ttl: int) -> int:
        """A new lease's id."""
        return int((await self._grant(self._messages["LeaseGrantRequest"](TTL=ttl))).ID)

    async def revoke(self, lease: int) -> None:
        """End it."""
        await self._revoke(self._messages["LeaseRevokeRequest"](ID=lease))

    async def keep_alive(self, leases: list[int], times: int) -> int:
        """Renew all of them so often on one stream, as fast as it goes; how many were renewed."""
        call = self._keep_alive()
        requests = [self._messages["LeaseKeepAliveRequest"](ID=lease) for lease in leases]

        async def write() -> None:
            for _ in range(times):
                for request in requests:
                    await call.write(request)
            await call.done_writing()

        writing = asyncio.ensure_future(write())
        renewed = 0
        async for response in call:
            renewed += response.TTL > 0
        await writing
        return renewed

    def _unary(self, channel: grpc.aio.Channel, name: str) -> Any:
        return channel.unary_unary(
            f"{_SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._messages[f"{name}Response"].FromString,
        )


@contextlib.asynccontextmanager
async def etcd(directory: Path) -> AsyncIterator[EtcdLeases | None]:
    """A server of its own; None when there is no etcd here."""
    found = program()
    if found is None:
        yield None
        return
    addresses = choose({"client": 0, "peer": 0}, {})
    client, peer = f"http://{addresses['client']}", f"http://{addresses['peer']}"
    log = (directory / "etcd.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        *tied(
            [
                found,
                *("--data-dir", str(directory / "etcd"), "--name", "a", "--initial-cluster", f"a={peer}"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            ]
        ),
        stdout=log,
        stderr=log,
    )
    try:
        async with open_channel(addresses["client"]) as channel:
            leases = EtcdLeases(channel)
            await _until_it_grants(leases)
            yield leases
    finally:
        process.kill()
        await process.wait()
        log.close()


async def _until_it_grants(leases: EtcdLeases) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await leases.revoke(await leases.grant(60))
                return
            await asyncio.sleep(0.1)


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="etcd.proto", package="etcdserverpb", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            message.field.add(
                name=field,
                number=number,
                type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"etcdserverpb.{name}"))
        for name in _MESSAGES
    }
