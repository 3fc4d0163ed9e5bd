"""A session of two replicas, watched through both of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
from moorage.common.v1.record_pb2 import Record
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from tests.session.clients import Client

PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Replica:
    """A session process and a client of it."""

    channel: grpc.aio.Channel
    client: Client


class Watcher:
    """WatchSession at one replica, from the session's begin."""

    def __init__(self, replica: Replica, session_id: str) -> None:
        """Not watching yet."""
        self._channel = replica.channel
        self._request = session_pb2.WatchSessionRequest(session_id=session_id)
        self._told: dict[tuple[str, str], list[Record]] = defaultdict(list)
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Watch until cancelled."""
        call = SessionServiceStub(self._channel).WatchSession(self._request)
        try:
            async for response in call:
                if response.HasField("record"):
                    await self._take(response.record)
        finally:
            call.cancel()

    async def saw(self, turn_id: str, kind: str) -> Record:
        """The first record of the turn of this kind, once it was told."""
        told = self._told[turn_id, kind]
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: told)
        return told[0]

    def count(self, turn_id: str, kind: str) -> int:
        """How many records of this kind were told of the turn."""
        return len(self._told[turn_id, kind])

    async def _take(self, record: Record) -> None:
        async with self._news:
            self._told[record.turn_id, record.body.WhichOneof("body") or ""].append(record)
            self._news.notify_all()


class Lane:
    """One session. Stops go to the first replica, turns and answers to the second one."""

    def __init__(self, replicas: tuple[Replica, Replica], session_id: str) -> None:
        """The session exists."""
        self.session_id = session_id
        self.clients = [replica.client for replica in replicas]
        self.watchers = [Watcher(replica, session_id) for replica in replicas]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch within the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watcher.run()) for watcher in self.watchers]
            yield
            for task in tasks:
                task.cancel()

    async def start(self, turn_id: str, prompt: str, **fields: Any) -> session_pb2.Turn:
        """StartTurn."""
        return await self.clients[1].start(self.session_id, prompt, turn_id=turn_id, **fields)

    async def stop(self, turn_id: str = "", **fields: Any) -> session_pb2.Command:
        """StopTurn."""
        return (await self.clients[0].stop(self.session_id, turn_id, **fields)).command

    async def answer(self, interaction_id: str, option_id: str) -> session_pb2.Interaction:
        """AnswerInteraction."""
        return await self.clients[1].answer(self.session_id, interaction_id, option_id)

    async def saw(self, turn_id: str, kind: str) -> Record:
        """A record of the turn, once the second replica has told it."""
        return await self.watchers[1].saw(turn_id, kind)

    async def over(self, turn_id: str) -> session_pb2.Turn:
        """The turn, once it has ended.

        Both watchers were told so, once; and both replicas say that it does not run any more and
        that nothing of it is open.
        """
        for watcher in self.watchers:
            await watcher.saw(turn_id, "turn_ended")
            assert watcher.count(turn_id, "turn_ended") == 1
            assert watcher.count(turn_id, "interaction_opened") == watcher.count(
                turn_id, "interaction_closed"
            )
        turn, same = [await client.get_turn(self.session_id, turn_id) for client in self.clients]
        assert turn == same
        assert turn.HasField("end_time")
        assert not turn.stopping
        assert not turn.pending_interaction_ids
        for client in self.clients:
            assert (await client.get(self.session_id)).turn.turn_id != turn_id
        return turn

    async def settled(self, command: session_pb2.Command) -> session_pb2.Command:
        """The command as it was settled; both replicas say the same."""
        settled, same = [
            await client.get_command(self.session_id, command.command_id, wait=True)
            for client in self.clients
        ]
        assert settled == same
        assert settled.HasField("settle_time")
        return settled
