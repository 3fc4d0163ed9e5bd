"""`moorage session takeover` between processes: what the replaced runner had lives no more, and begins nothing (F8)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.talks import Talks
from tests.system.fleet import Fleet, dead, pid_of

pytestmark = pytest.mark.timeout(180)

LONG = ("--lease-ttl", "60")
SHORT = ("--lease-ttl", "6")
TAKEN_OVER = ("t1", "LOST", "TAKEN_OVER")


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A workspace and one replica of the session service."""
    async with Fleet(database_url, tmp_path) as fleet:
        await fleet.start_workspace()
        await fleet.start_session()
        yield fleet


async def takeover(fleet: Fleet) -> asyncio.subprocess.Process:
    """The command, started somewhere where no `up` serves."""
    address, journal = fleet.addresses["session"]
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "services.cli",
            "--address",
            address,
            "session",
            "takeover",
            "s",
            "--yes",
            "--json",
        ),
        *("--owner-address", fleet.stack.owner.endpoint, "--workspace-address", fleet.workspace_address),
        *("--journal-address", journal),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def taken(fleet: Fleet) -> str:
    """Take the session over; the turn that was lost by it."""
    process = await takeover(fleet)
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors) == (0, b"")
    told: str = json.loads(output)["turn"]
    return told


async def working(fleet: Fleet, talks: Talks, *flags: str) -> int:
    """A session whose runner runs a turn; the agent's pid."""
    await fleet.start_runner("one", *flags)
    await talks.create("s")
    await talks.start("s", "t1", "pid\ncount to 1000000 every 0.01")
    return await pid_of(talks)


async def parked(fleet: Fleet, talks: Talks, *flags: str) -> int:
    """A session whose runner keeps the agent; its pid."""
    await fleet.start_runner("one", *flags)
    await talks.create("s")
    await talks.run("s", "t1", "pid")
    return await pid_of(talks)


async def test_a_hung_runners_turn_is_lost_and_its_agent_dead_when_the_command_returns(fleet: Fleet) -> None:
    async with fleet.talks() as talks:
        pid = await working(fleet, talks, *LONG)
        fleet.processes["runner-one"].send(signal.SIGSTOP)
        assert await taken(fleet) == "t1"
        assert not is_alive(pid)
        assert await fleet.endings() == [TAKEN_OVER]
        assert not (await fleet.lease()).live


async def test_the_next_turn_is_begun_under_a_new_token_though_the_replaced_one_had_a_warm_agent(
    fleet: Fleet,
) -> None:
    async with fleet.talks() as talks:
        pid = await parked(fleet, talks, *LONG)
        token = (await fleet.lease()).token
        assert await taken(fleet) == ""
        # It was offered to whoever kept the agent, and learns there that its token is good no more.
        turn = await talks.run("s", "t2", "say two")
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert turn.metadata.token > token + 1
        assert not is_alive(pid)


async def test_what_a_hung_runner_had_parked_is_dead_and_it_ends_the_rest_when_it_learns(
    fleet: Fleet,
) -> None:
    async with fleet.talks() as talks:
        pid = await parked(fleet, talks, *LONG)
        runner = fleet.processes["runner-one"]
        runner.send(signal.SIGSTOP)
        assert await taken(fleet) == ""
        assert not is_alive(pid)
        await fleet.start_runner("two", *LONG)
        turn = await talks.run("s", "t2", "say here")
        assert (turn.state, turn.metadata.runner_id[:4]) == (turn_pb2.TURN_STATE_COMPLETED, "two/")
        runner.send(signal.SIGCONT)
        ending = "ending a warm runtime"
        await eventually(lambda: bool(runner.events(ending)), within=60, what="the first runner learns")
        await talks.create("other")
        assert (await talks.run("other", "t1", "say there")).state == turn_pb2.TURN_STATE_COMPLETED


async def test_while_the_workspace_does_not_answer_the_command_waits_for_the_replaced_grant(
    fleet: Fleet,
) -> None:
    async with fleet.talks() as talks:
        pid = await working(fleet, talks, *SHORT)
        fleet.processes["runner-one"].send(signal.SIGSTOP)
        fleet.processes["workspace"].send(signal.SIGSTOP)
        replaced = (await fleet.lease()).expire_time.ToDatetime(tzinfo=UTC)
        process = await takeover(fleet)
        assert process.stderr is not None
        assert b"does not end what runs there" in await asyncio.wait_for(process.stderr.readline(), 60)
        if datetime.now(UTC) < replaced:
            assert not (await talks.turn("s", "t1")).HasField("end_time")
        turn = await talks.ended("s", "t1")
        assert turn.end_reason == turn_pb2.END_REASON_TAKEN_OVER
        assert turn.end_time.ToDatetime(tzinfo=UTC) >= replaced
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, json.loads(output)["turn"]) == (0, "t1")
        fleet.processes["workspace"].send(signal.SIGCONT)
        await dead(pid)
