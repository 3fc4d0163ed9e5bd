"""Runner processes with warm agents, killed and ended (F6, F11, T7)."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.holding import live_leases, pid_in
from tests.runner.parts import Stack
from tests.runner.talks import Talks
from tests.system.service_process import ServiceProcess

# Processes take their time to start on a busy machine.
pytestmark = pytest.mark.timeout(150)

LEASE = 3.0
WARM = turn_pb2.RUNTIME_AFTER_WARM


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Owner, workspace and session in this process; runners are not."""
    root = tmp_path / "root"
    root.mkdir()
    stack = Stack(database_url, root, tmp_path / "state")
    await stack.start()
    yield stack
    await stack.stop()


@pytest.fixture
async def talks(stack: Stack) -> AsyncIterator[Talks]:
    """A client."""
    async with open_channel(stack.session.endpoint) as channel:
        yield Talks(channel)


def runner_process(stack: Stack, log: Path) -> ServiceProcess:
    """A start of the runner `one`, with short leases."""
    return ServiceProcess(
        "runner",
        log,
        *("--name", "one", "--lease-ttl", str(LEASE), "--terminate-timeout", "0.5"),
        *("--owner-address", stack.owner.endpoint, "--workspace-address", stack.workspace.endpoint),
        *("--journal-address", stack.session.service.journal_endpoint),
    )


async def parked(talks: Talks, session_id: str) -> int:
    """A session whose agent is kept warm; its process."""
    await talks.create(session_id)
    turn = await talks.run(session_id, "one", "who are you\nremember the lighthouse")
    assert turn.runtime_after == WARM
    return pid_in(await talks.said(session_id, "one"))


async def test_a_killed_runner_takes_its_warm_agents_along_and_the_next_turn_loads(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    async with runner_process(stack, tmp_path / "first.log") as first:
        await first.logged("registered")
        pid = await parked(talks, "s")
        first.send(signal.SIGKILL)
        await eventually(lambda: not is_alive(pid), what="the agent died with its stream")
    async with runner_process(stack, tmp_path / "second.log") as second:
        await second.logged("registered")
        turn = await talks.run("s", "two", "recall")
    assert turn.metadata.resume_kind == turn_pb2.RESUME_KIND_LOADED
    assert await talks.said("s", "two") == "the lighthouse\n"
    assert turn.metadata.token > (await talks.turn("s", "one")).metadata.token


async def test_sigterm_ends_warm_agents_and_releases_their_leases_first(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    async with runner_process(stack, tmp_path / "one.log") as runner:
        await runner.logged("registered")
        pids = [await parked(talks, name) for name in ("a", "b", "c")]
        await talks.create("busy")
        await talks.start("busy", "t", "say begun\nsleep 5\nsay done")
        await talks.says("busy", "t", "begun")
        asked_at = time.monotonic()
        runner.send(signal.SIGTERM)

        async def only_the_busy_one() -> bool:
            return await live_leases(stack.owner.endpoint) == ["projects/default/sessions/busy"]

        await eventually(only_the_busy_one, what="the leases of the parked were released")
        assert time.monotonic() - asked_at < LEASE + 2
        assert not any(map(is_alive, pids))
        assert await runner.exit_code() == 0
    turn = await talks.turn("busy", "t")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    # Nobody keeps an agent in a runner that goes.
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED
    assert await live_leases(stack.owner.endpoint, "") == ["instances/local"]
