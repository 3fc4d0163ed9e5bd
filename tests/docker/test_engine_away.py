"""Sessions while the engine does not answer: nothing is concluded, and everything says what it waits for (W3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.engines import BUSYBOX, PrivateEngine, private_engine
from tests.runner.parts import Stack
from tests.runner.profiles import write_profile
from tests.runner.talks import Talks

pytestmark = pytest.mark.timeout(180)

PREPARING = turn_pb2.TURN_PHASE_PREPARING_WORKSPACE
DOCKER = provision_pb2.ProvisionSpec(provider="docker")


@pytest.fixture
async def engine() -> AsyncIterator[PrivateEngine]:
    """One that can be paused."""
    async with private_engine() as engine:
        yield engine


@pytest.fixture
async def talks(engine: PrivateEngine, database_url: str, tmp_path: Path) -> AsyncIterator[Talks]:
    """A client of services whose containers are of that engine."""
    (tmp_path / "root").mkdir()
    write_profile(tmp_path / "profiles", "brief", "false", container_command=["sh", "-c", "exit 7"])
    workspace = {"docker_host": engine.address, "docker_images": (BUSYBOX,), "docker_timeout": 1.0}
    stack = Stack(database_url, tmp_path / "root", tmp_path / "state", {"workspace": workspace})
    await stack.start()
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    async with open_channel(stack.session.endpoint) as channel:
        yield Talks(channel)
    engine.resume()
    await stack.stop()


async def test_a_session_is_made_its_turn_waits_and_closing_waits_for_the_engine(
    talks: Talks, engine: PrivateEngine
) -> None:
    engine.pause()
    made = await talks.create("s", provision=DOCKER, profile="brief")
    assert (made.state, made.workspace.state) == (session_pb2.SESSION_STATE_OPEN, "PROVISIONING")
    await talks.start("s", "t1", "hello")
    await waits(talks, "t1", "PROVISIONING")
    engine.resume()
    # It was started in its container, and did what it does.
    turn = await talks.ended("s", "t1", within=60)
    assert (turn.end_reason, turn.error.metadata["exit_code"]) == (turn_pb2.END_REASON_AGENT_EXITED, "7")

    engine.pause()
    await talks.start("s", "t2", "hello")
    await waits(talks, "t2", "docker is unavailable")
    engine.resume()
    turn = await talks.ended("s", "t2", within=60)
    assert turn.error.metadata["exit_code"] == "7"

    engine.pause()
    root = Path((await talks.session("s")).workspace.root)
    closing = await talks.stub.CloseSession(session_pb2.CloseSessionRequest(session_id="s"), timeout=30)
    assert closing.session.state == session_pb2.SESSION_STATE_CLOSING

    async def says_so() -> bool:
        operation = (await talks.session("s")).operation
        return "is being removed: " in operation.waiting_reason

    await eventually(says_so, within=60)
    assert root.is_dir()
    engine.resume()
    await eventually(lambda: not root.exists(), within=60)

    async def closed() -> bool:
        return (await talks.session("s")).state == session_pb2.SESSION_STATE_CLOSED

    await eventually(closed, within=60)
    with engine.client() as client:
        assert client.containers.list(all=True) == []


async def waits(talks: Talks, turn_id: str, cause: str) -> None:
    """Return when the turn waits for its workspace, because of this."""

    async def so_it_says() -> bool:
        turn = await talks.turn("s", turn_id)
        return turn.phase == PREPARING and cause in turn.waiting_reason

    await eventually(so_it_says, within=60, what=f"the turn waits: {cause}")
