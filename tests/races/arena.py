"""Two session processes with one database and one runner process, and rounds of races in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.databases import fetch
from tests.races.lanes import Lane, Replica
from tests.races.offsets import Offsets, Tally
from tests.runner.parts import FREE, Stack
from tests.session.clients import Client
from tests.system.service_process import ServiceProcess

ROUNDS = int(os.environ.get("RACES", "30"))
SEED = int(os.environ.get("SEED", "0")) or secrets.randbelow(10**6)
# Sessions that race at the same time.
LANES = 4
# Long enough for the expiry of both replicas to wait for it to the moment.
INTERACTION_TIMEOUT = 1.2


@dataclass(frozen=True, slots=True)
class Round:
    """One round in a session: names, and the offset between the two that meet."""

    arena: Arena
    lane: Lane
    number: int
    offset: float

    @property
    def turn_id(self) -> str:
        """The round's turn."""
        return f"t{self.number}"

    @property
    def next_id(self) -> str:
        """The turn after it."""
        return f"next{self.number}"


@dataclass(frozen=True, slots=True)
class Race:
    """Two that meet. The first side is the one that wins when the second is late."""

    name: str
    sides: tuple[str, str]
    # Plays a round and tells the side that won.
    play: Callable[[Round], Awaitable[str]]
    # Of the offsets, in seconds: how far they are spread, around what at first, and the smallest.
    width: float = 0.02
    centre: float = 0.0
    least: float = -1.0
    lanes: int = LANES


@dataclass(frozen=True, slots=True)
class Arena:
    """What all races share."""

    database_url: str
    root: Path
    replicas: tuple[Replica, Replica]

    async def run(self, race: Race, **fields: Any) -> None:
        """Play all rounds, in several sessions at once; fails when a side hardly ever won.

        `fields` are those of the sessions.
        """
        tally = Tally(race.name, race.sides, SEED)
        offsets = Offsets(SEED, width=race.width, centre=race.centre, least=race.least)
        numbers = iter(range(ROUNDS))
        async with asyncio.TaskGroup() as lanes:
            for index in range(race.lanes):
                lanes.create_task(self._run_lane(race, index, numbers, offsets, tally, fields))
        tally.check(ROUNDS)
        await self._audit()

    async def _run_lane(
        self,
        race: Race,
        index: int,
        numbers: Iterator[int],
        offsets: Offsets,
        tally: Tally,
        fields: dict[str, Any],
    ) -> None:
        async with self._lane(f"{race.name.replace(' ', '-')}-{index}", fields) as lane:
            for number in numbers:
                side = await race.play(Round(self, lane, number, offsets.draw()))
                tally.wins[side] += 1
                offsets.learn(first_won=side == race.sides[0])

    async def _audit(self) -> None:
        """Nothing is open, every turn has one end, and no Stop is about a turn that nobody meant."""
        (row,) = await fetch(
            self.database_url,
            """
            SELECT (SELECT count(*) FROM session.commands WHERE settle_time IS NULL) AS open_commands,
                   (SELECT count(*) FROM session.commands WHERE turn_id LIKE 'next%') AS misled_commands,
                   (SELECT count(*) FROM session.interactions WHERE state = 'PENDING') AS open_questions,
                   (SELECT count(*) FROM session.turns WHERE end_time IS NULL) AS open_turns,
                   (SELECT count(*) FROM session.turns) AS turns,
                   (SELECT count(*) FROM session.records WHERE kind = 'turn_ended') AS ends
            """,
        )
        assert row["turns"] == row["ends"]
        assert not any(value for name, value in row.items() if name not in ("turns", "ends")), row

    @contextlib.asynccontextmanager
    async def _lane(self, session_id: str, fields: dict[str, Any]) -> AsyncIterator[Lane]:
        """A new session with a warm agent."""
        await self.replicas[0].client.create(session_id=session_id, **fields)
        lane = Lane(self.replicas, session_id)
        async with lane.watched():
            await lane.start("warm", "say warm")
            await lane.over("warm")
            yield lane


@contextlib.asynccontextmanager
async def arena(database_url: str, directory: Path) -> AsyncIterator[Arena]:
    """Owner and workspace in this process; the runner writes to the first replica."""
    root = directory / "root"
    root.mkdir()
    stack = Stack(database_url, root, directory / "state")
    await stack.owner.start()
    await stack.workspace.start()
    where = ("--owner-address", stack.owner.endpoint, "--workspace-address", stack.workspace.endpoint)
    database = ("--journal-listen", FREE, "--database-url", database_url)
    session = (*database, "--interaction-timeout", str(INTERACTION_TIMEOUT), *where)
    replicas = [ServiceProcess("session", directory / f"{name}.log", *session) for name in ("one", "other")]
    async with contextlib.AsyncExitStack() as running:
        running.push_async_callback(stack.stop)
        for replica in replicas:
            await running.enter_async_context(replica)
        endpoints = [await serving(replica) for replica in replicas]
        journal = ("--journal-address", endpoints[0][1], *where)
        runner = ServiceProcess("runner", directory / "runner.log", "--name", "one", *journal)
        await running.enter_async_context(runner)
        channels = [await running.enter_async_context(open_channel(clients)) for clients, _ in endpoints]
        await runner.logged("registered")
        one, other = (Replica(channel, Client(channel)) for channel in channels)
        yield Arena(database_url, root, (one, other))


async def serving(replica: ServiceProcess) -> tuple[str, str]:
    """Where a session process serves clients and runners, once it is ready."""
    await replica.logged("ready")
    await eventually(lambda: len(replica.events("serving")) == 2)
    clients, journal = (event["endpoint"] for event in replica.events("serving"))
    return clients, journal
