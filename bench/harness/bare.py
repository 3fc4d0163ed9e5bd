"""A bare unary gRPC call: what any call costs here, with a server in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

_METHOD = "/bench.Bare/Echo"
_BODY = b"x" * 64


class BareCall:
    """Calls it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """The channel leads to the bare server."""
        self._call: Any = channel.unary_unary(_METHOD)

    async def __call__(self) -> float:
        """The seconds of one call."""
        began = time.perf_counter()
        await self._call(_BODY)
        return time.perf_counter() - began


@contextlib.asynccontextmanager
async def bare_call() -> AsyncIterator[BareCall]:
    """A server in a process, and the call of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        endpoint = (await process.stdout.readline()).decode().strip()
        async with grpc.aio.insecure_channel(endpoint) as channel:
            yield BareCall(channel)
    finally:
        process.stdin.close()
        await process.wait()


async def serve() -> None:
    """Serve until standard input ends; the first line of standard output is the endpoint."""
    server = grpc.aio.server()
    handlers: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(_echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


async def _echo(request: bytes, _: object) -> bytes:
    return request


if __name__ == "__main__":
    asyncio.run(serve())
