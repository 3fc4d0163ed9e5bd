"""A workspace that does not answer: a Stop ends its turn all the same, in the time of its ladder (S8, S11)."""

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
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of
from tests.system.service_process import ServiceProcess

pytestmark = pytest.mark.timeout(150)

CANCEL, CLOSE, TERMINATE = 0.5, 0.2, 0.5
# KILL and the claim that follows have times of their own.
LADDER = CANCEL + CLOSE + TERMINATE + 5.0 + 2.0
STOPPED, COMPLETED = turn_pb2.TURN_STATE_STOPPED, turn_pb2.TURN_STATE_COMPLETED
LEAVES_ONE = "run setsid sh -c 'echo $$ > child; exec sleep 600' & until test -s child; do sleep 0.01; done"


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Owner, session and a runner in this process; the workspace is not."""
    root = tmp_path / "root"
    root.mkdir()
    stack = Stack(database_url, root, tmp_path / "state")
    await stack.start()
    await stack.workspace.stop()
    await stack.add_runner(cancel_timeout=CANCEL, close_timeout=CLOSE, terminate_timeout=TERMINATE)
    yield stack
    await stack.stop()


@pytest.fixture
async def workspace(stack: Stack, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """Where the stack's own one was."""
    process = ServiceProcess(
        "workspace",
        tmp_path / "workspace.log",
        *("--root", str(stack.root), "--default-directory", str(stack.root)),
        *("--state-directory", str(stack.state), "--owner-address", stack.owner.endpoint),
        *("--database-url", stack.database_url, "--lease-ttl", "60"),
        listen=stack.workspace.endpoint,
    )
    async with process:
        await process.logged("ready")
        yield process


@pytest.fixture
async def talks(stack: Stack) -> AsyncIterator[Talks]:
    """A client."""
    async with open_channel(stack.session.endpoint) as channel:
        yield Talks(channel)


async def test_an_agent_at_work(stack: Stack, talks: Talks, workspace: ServiceProcess) -> None:
    await talks.create("s")
    await talks.start("s", "t", f"who are you\n{LEAVES_ONE}\nsleep 600")
    pid = pid_in(await talks.says("s", "t", "Sleeping"))
    child = int((stack.root / "child").read_text())
    workspace.send(signal.SIGSTOP)
    asked_at = time.monotonic()
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t", within=LADDER + 10)
    assert time.monotonic() - asked_at < LADDER + 3.0
    assert (turn.state, turn.stop_method) == (STOPPED, turn_pb2.STOP_METHOD_RUNTIME_DESTROYED)
    # Nobody is there who could say that it is dead.
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_UNSPECIFIED
    assert kinds_of(await talks.records("s", "t")).count("turn_ended") == 1
    workspace.send(signal.SIGCONT)
    await eventually(lambda: not is_alive(pid) and not is_alive(child), what="both die with their stream")
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED
    await stack.runners["one"].stop()


async def test_a_turn_that_waits_for_it(stack: Stack, talks: Talks, workspace: ServiceProcess) -> None:
    await talks.create("s")
    workspace.send(signal.SIGSTOP)
    await talks.start("s", "t", "run touch ran")

    async def prepares() -> bool:
        return (await talks.turn("s", "t")).phase == turn_pb2.TURN_PHASE_PREPARING_WORKSPACE

    await eventually(prepares)
    asked_at = time.monotonic()
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert time.monotonic() - asked_at < 3.0
    assert (turn.state, turn.stop_method) == (STOPPED, turn_pb2.STOP_METHOD_PROMPT_WITHDRAWN)
    workspace.send(signal.SIGCONT)
    assert (await talks.run("s", "next", "say goes on")).state == COMPLETED
    assert not (stack.root / "ran").exists()
    await stack.runners["one"].stop()
