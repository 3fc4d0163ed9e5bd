"""kill -9 of a service, and a restart of PostgreSQL, at a random moment of a turn: nothing is lost or doubled (R1, F6).

`FAULTS` is half of how often each happens (1), `FAULT_SEED` when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest
import pytest_asyncio
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import Record

from services.cli.postgres.embedded import EmbeddedPostgres
from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.remains import marked
from tests.runner.talks import Talks, kinds_of, text_of
from tests.servers import own_server
from tests.system.repeating import FAULTS, SEED
from tests.system.whole import Whole
from tests.system.witness import Witness, at_last, witnessed

# Processes take their time to start on a busy machine.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

NUMBERS = 2000
PATIENCE = 60.0
WORK = f"count to {NUMBERS} into {{log}} every 0.0005"
LEAVES_ONE = "run setsid sh -c 'echo $$ > {log}.child; exec sleep 600' & until test -s {log}.child; do sleep 0.01; done"
FLAGS = {"runner": ("--park-limit", "2", "--terminate-timeout", "0.5")}
ENDED_BY_ITSELF = (turn_pb2.TURN_STATE_COMPLETED, turn_pb2.END_REASON_AGENT_ENDED)

rounds = pytest.mark.parametrize("number", range(2 * FAULTS))


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that these tests may restart."""
    with own_server(tmp_path_factory) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def whole(
    own_postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Whole]:
    """Everything; what is ended is started again."""
    async with Whole(own_postgres, tmp_path_factory.mktemp("whole"), FLAGS) as whole:
        yield whole


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def talks(whole: Whole) -> AsyncIterator[Talks]:
    """A client."""
    async with whole.talks() as talks:
        yield talks


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def short(whole: Whole) -> None:
    """From here on the workspace has a short lease: killed, it serves again when that has ended."""
    await whole.end("workspace")
    await whole.start("workspace", "--lease-ttl", "2")


@dataclass(frozen=True)
class Moment:
    """From the start of a turn (below 0: so many thousandths of a second after it) to its agent's last number."""

    place: int

    @classmethod
    def of(cls, name: str, number: int, first: int = -600, last: int = NUMBERS) -> Moment:
        """The one of a round; told, so that it can be repeated."""
        moment = cls(random.Random(f"{SEED} {name} {number}").randint(first, last))
        print(f"FAULT_SEED={SEED}, {name} {number}: {moment}")
        return moment

    async def come(self, case: Case) -> None:
        """Return then."""
        if self.place < 0:
            await asyncio.sleep(-self.place / 1000)
        else:
            await eventually(lambda: len(case.counted) >= self.place, within=PATIENCE, what=str(self))


@dataclass(frozen=True)
class Case:
    """A session with one turn, whose agent counts, and keeps a file on it."""

    whole: Whole
    talks: Talks
    session_id: str

    @cached_property
    def log(self) -> str:
        return f"{self.session_id}.log"

    @property
    def counted(self) -> list[int]:
        """By the agent, into its file."""
        file = self.whole.root / self.log
        return numbers_in(file.read_text()) if file.exists() else []

    async def start(self, *before: str) -> None:
        """The turn, after these other commands to the agent."""
        await at_last(lambda: self.talks.create(self.session_id))
        prompt = "\n".join((*before, WORK)).format(log=self.log)
        await at_last(lambda: self.talks.start(self.session_id, "t", prompt))

    async def over(
        self, witness: Witness
    ) -> tuple[turn_pb2.TurnState.ValueType, turn_pb2.EndReason.ValueType]:
        """How it ended; said once, and seen by the witness as it is stored."""
        await witness.ended("t", PATIENCE)
        records = await self.records()
        assert dict(enumerate(records, 1)) == witness.seen
        kinds = kinds_of(records)
        assert (kinds.count("turn_started"), kinds.count("turn_ended"), kinds[-1]) == (1, 1, "turn_ended")
        turn = await at_last(lambda: self.talks.turn(self.session_id, "t"))
        assert turn.last_seq == records[-1].seq
        return turn.state, turn.end_reason

    async def records(self) -> list[Record]:
        return await at_last(lambda: self.talks.records(self.session_id, "t"))

    async def check_completed(self, witness: Witness) -> None:
        """Nothing is lost, nothing doubled."""
        assert await self.over(witness) == ENDED_BY_ITSELF
        assert self.counted == list(range(1, NUMBERS + 1))
        assert numbers_in(text_of(await self.records())) == self.counted


def numbers_in(text: str) -> list[int]:
    """Of the lines that are one."""
    return [int(line) for line in text.splitlines() if line.isdigit()]


@rounds
@pytest.mark.parametrize("name", ["session", "owner", "session-owner"])
async def test_a_turn_completes_though_services_are_killed(
    whole: Whole, talks: Talks, name: str, number: int
) -> None:
    case = Case(whole, talks, f"{name}-{number}")
    async with witnessed(talks, case.session_id) as witness:
        await case.start()
        await Moment.of(name, number).come(case)
        killed = name.split("-")
        for each in killed:
            await whole.kill(each)
        await asyncio.gather(*map(whole.start, killed))
        await case.check_completed(witness)


@rounds
async def test_a_turn_completes_though_postgresql_is_started_again(
    whole: Whole, talks: Talks, number: int
) -> None:
    """Ended in order, and killed, by turns."""
    case = Case(whole, talks, f"postgres-{number}")
    async with witnessed(talks, case.session_id) as witness:
        await case.start()
        await Moment.of("postgres", number).come(case)
        (whole.postgres.kill if number % 2 else whole.postgres.stop)()
        whole.postgres.start()
        await case.check_completed(witness)


@rounds
@pytest.mark.usefixtures("short")
async def test_a_killed_workspace_loses_its_turn_and_leaves_nothing(
    whole: Whole, talks: Talks, number: int
) -> None:
    """What was said is what the agent's file begins with, and the end tells why it is not all."""
    case = Case(whole, talks, f"workspace-{number}")
    async with witnessed(talks, case.session_id) as witness:
        await case.start(LEAVES_ONE)
        # While there is something to be lost: an agent at its last number may have ended first.
        await Moment.of("workspace", number, first=1, last=NUMBERS * 3 // 4).come(case)
        child = int((whole.root / f"{case.log}.child").read_text())
        pids = deployed_with(child)
        await whole.kill("workspace")
        await whole.start("workspace", "--lease-ttl", "2")
        assert [pid for pid in pids if is_alive(pid)] == []
        assert len(pids) > 1
        assert await case.over(witness) == (turn_pb2.TURN_STATE_FAILED, turn_pb2.END_REASON_WORKSPACE_LOST)
    said = numbers_in(text_of(await case.records()))
    print(f"{len(said)} of {len(case.counted)} numbers were said")
    assert said == case.counted[: len(said)]
    assert len(case.counted) < NUMBERS
    turn = await talks.run(case.session_id, "next", "say on the successor")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert await talks.said(case.session_id, "next") == "on the successor"


def deployed_with(pid: int) -> list[int]:
    """This process, and all others that were started in workspaces of the same place."""
    markers = dict(marked())
    return [other for other, marker in markers.items() if marker.deployment == markers[pid].deployment]
