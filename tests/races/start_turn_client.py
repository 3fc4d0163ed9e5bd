"""A client process that starts a turn at a given moment, for each line of its standard input.

A line is `{"session_id", "turn_id", "at"}` in JSON, `at` by CLOCK_MONOTONIC, which processes of
one machine share. It answers `{"turn_id"}` when admitted, else `{"reason", "metadata"}`, with the
moments `sent` and `answered`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import grpc
from moorage.common.v1 import content_pb2
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.channels import open_channel
from services.common.status import from_rpc_error


async def main(endpoint: str) -> None:
    """Serve standard input until it ends."""
    async with open_channel(endpoint) as channel:
        await channel.channel_ready()
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await start(SessionServiceStub(channel), **json.loads(line))), flush=True)


async def start(stub: Any, session_id: str, turn_id: str, at: float) -> dict[str, object]:
    """One StartTurn, sent at `at`."""
    prompt = content_pb2.ContentBlock(text=content_pb2.TextContent(text="hello"))
    request = session_pb2.StartTurnRequest(session_id=session_id, turn_id=turn_id, prompt=[prompt])
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    sent = time.monotonic()
    try:
        response = await stub.StartTurn(request, timeout=30.0)
        outcome: dict[str, object] = {"turn_id": response.turn.turn_id}
    except grpc.aio.AioRpcError as error:
        refusal = from_rpc_error(error)
        outcome = {"reason": refusal.reason_name, "metadata": refusal.metadata}
    return {**outcome, "sent": sent, "answered": time.monotonic()}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
