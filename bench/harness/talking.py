"""A client of a running stack: one session, watched, whose agent tells when it is told to cancel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.cli.stack import StackOptions, run_stack
from services.common.channels import open_channel

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

AGENT = Path(__file__).with_name("telling_agent.py")
PROFILE = "telling"
_PATIENCE = 30.0


class Talk:
    """A session; moments are seconds on the monotonic clock."""

    def __init__(self, stub: SessionServiceAsyncStub, session_id: str) -> None:
        """The session exists."""
        self._stub = stub
        self._session_id = session_id
        self._told: dict[tuple[str, str], asyncio.Future[float]] = {}

    async def watch(self) -> None:
        """Note when what is told, until cancelled."""
        request = session_pb2.WatchSessionRequest(session_id=self._session_id)
        async for response in self._stub.WatchSession(request):
            if response.HasField("record"):
                record = response.record
                told = self._first(record.turn_id, record.body.WhichOneof("body") or "")
                if not told.done():
                    told.set_result(time.monotonic())

    async def start(self, turn_id: str, prompt: str) -> None:
        """StartTurn."""
        request = session_pb2.StartTurnRequest(
            session_id=self._session_id,
            turn_id=turn_id,
            prompt=[ContentBlock(text=TextContent(text=prompt))],
        )
        await self._stub.StartTurn(request, timeout=_PATIENCE)

    async def stop(self, turn_id: str) -> None:
        """StopTurn."""
        request = session_pb2.StopTurnRequest(session_id=self._session_id, expected_turn_id=turn_id)
        await self._stub.StopTurn(request, timeout=_PATIENCE)

    async def told(self, turn_id: str, kind: str) -> float:
        """When the watch told the first record of this kind of the turn."""
        return await asyncio.wait_for(asyncio.shield(self._first(turn_id, kind)), _PATIENCE)

    def _first(self, turn_id: str, kind: str) -> asyncio.Future[float]:
        key = (turn_id, kind)
        if key not in self._told:
            self._told[key] = asyncio.get_running_loop().create_future()
        return self._told[key]


class Cancels(asyncio.DatagramProtocol):
    """The moments in which the agent was told to cancel."""

    def __init__(self) -> None:
        """None yet."""
        self._moments: asyncio.Queue[float] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """See DatagramProtocol."""
        self._moments.put_nowait(float(data))

    async def next(self) -> float:
        """The next one."""
        return await asyncio.wait_for(self._moments.get(), _PATIENCE)


@contextlib.asynccontextmanager
async def talking(directory: Path) -> AsyncIterator[tuple[Talk, Cancels]]:
    """All services as processes, a session in them that is watched, and what its agent tells."""
    root = directory / "root"
    root.mkdir()
    address = str(directory / "cancels")
    transport, cancels = await asyncio.get_running_loop().create_datagram_endpoint(
        Cancels, address, family=socket.AF_UNIX
    )
    os.environ["MOORAGE_RUNNER_PROFILES_DIRECTORY"] = str(_profiles(directory / "profiles", address))
    try:
        async with (
            run_stack(StackOptions(root, directory / "state")) as stack,
            open_channel(stack.running.session) as channel,
            watched(SessionServiceStub(channel), "s", PROFILE) as talk,
        ):
            yield talk, cancels
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def watched(stub: SessionServiceAsyncStub, session_id: str, profile: str) -> AsyncIterator[Talk]:
    """A new session, watched within the block."""
    agent = session_pb2.AgentSpec(profile=profile)
    await stub.CreateSession(session_pb2.CreateSessionRequest(session_id=session_id, agent=agent))
    talk = Talk(stub, session_id)
    watching = asyncio.create_task(talk.watch())
    try:
        yield talk
    finally:
        watching.cancel()
        await asyncio.wait({watching})


def _profiles(directory: Path, address: str) -> Path:
    directory.mkdir()
    command = ["{python}", "-I", "-S", str(AGENT), address, "{demo_agent}"]
    fields = {"name": PROFILE, "description": "tells of cancels", "network": "none", "command": command}
    lines = (f"{key} = {json.dumps(value)}" for key, value in fields.items())
    (directory / f"{PROFILE}.toml").write_text("\n".join(lines), encoding="utf-8")
    return directory
