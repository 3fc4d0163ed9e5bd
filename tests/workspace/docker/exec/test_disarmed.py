"""Commands that harm what would kill them, or outrun it: they are dead all the same (F6)."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from services.workspace.docker.exec import ending
from services.workspace.docker.exec.helper import why_missing
from services.workspace.exec.process import Outcome, PlaceStopped, Process, ProcessLost
from tests.conditions import eventually
from tests.engines import shared_engine
from tests.workspace.conformance.places import Container, DockerPlace, container_on, run, start
from tests.workspace.processes import FORK_BOMB, appears, with_argument

PIDS = 64
DEMO = "moorage-test:demo"


@pytest.fixture
def tag() -> str:
    """An argument of the processes of a test: no others have it."""
    return f"6{secrets.randbelow(10**8):08}"


@pytest.fixture
async def container() -> AsyncIterator[Container]:
    """With room for few processes."""
    address = shared_engine()
    if missing := why_missing("amd64"):
        pytest.skip(missing)
    async with container_on(address, image=DEMO, pids_limit=PIDS) as container:
        yield container


@pytest.fixture
async def place(container: Container) -> AsyncIterator[DockerPlace]:
    """In that container."""
    place = DockerPlace(container)
    yield place
    await place.close()


def disarm(container: Container) -> None:
    """What each command of the container may do to its first process, which is of the same user."""
    state = container.engine.api.inspect_container(container.container_id)["State"]
    command = ["prlimit", "--nofile=0:0", "--pid", str(state["Pid"])]
    subprocess.run(command, check=True, user=10001, group=10001, extra_groups=[])


async def orphan(place: DockerPlace, tag: str) -> Process:
    """It has killed its helper, or will when it is told to go on."""
    process = await start(
        place, "sh", "-c", f"setsid env -i /bin/sleep {tag} & read go; kill -KILL $PPID; sleep {tag}"
    )
    await appears(tag, 1)
    return process


async def bomb(place: DockerPlace, tag: str) -> Process:
    process = await start(place, "python3", "-c", FORK_BOMB, tag)
    await appears(tag, PIDS // 2)
    return process


async def test_a_container_ends_whose_first_process_cannot_look_any_more(
    place: DockerPlace, container: Container, tag: str
) -> None:
    """Nothing but it is asked to."""
    process = await orphan(place, tag)
    disarm(container)
    process.streams.stdin.write_now(memoryview(b"go\n"))
    await eventually(lambda: not with_argument(tag), within=15)
    with pytest.raises(ProcessLost):
        await process.ended
    with pytest.raises(PlaceStopped, match="kept from looking"):
        await process.kill_left("")


async def test_a_bomb_that_is_killed_leaves_nothing(place: DockerPlace, tag: str) -> None:
    process = await bomb(place, tag)
    process.kill()
    # The helper says so, or, late on a busy machine, another look; the container goes on in any case.
    await asyncio.wait({process.ended})
    if process.ended.exception() is not None:
        assert await process.kill_left("") is None
    assert with_argument(tag) == []
    assert (await run(place, "true")).outcome == Outcome(0, None, killed=False)


@pytest.mark.parametrize("program", ["exit 1", "exit 126", "kill -KILL $$"])
async def test_what_cannot_be_killed_ends_with_its_container_and_nothing_else_counts(
    place: DockerPlace, container: Container, tag: str, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """As when something is left, the limit of processes is reached, or a command kills who looks."""
    monkeypatch.setattr(ending, "_GRACE", 0.3)
    monkeypatch.setattr(ending, "_LONGEST_SILENCE", 0.3)
    await orphan(place, tag)
    helper = container.helper / "exec"
    helper.unlink()
    helper.write_text(f"#!/bin/sh\n{program}\n")
    helper.chmod(0o555)
    with capture_logs() as logs, pytest.raises(PlaceStopped, match="could not be killed"):
        await ending.until_dead(container.engine, container.container_id, "deployment/", 0.0)
    assert with_argument(tag) == []
    assert "a container is stopped" in str(logs)


async def test_a_container_that_a_new_start_cannot_clear_is_stopped(
    place: DockerPlace, container: Container, tag: str
) -> None:
    await orphan(place, tag)
    helper = container.helper / "exec"
    helper.unlink()
    helper.write_text("#!/bin/sh\nexit 1\n")
    helper.chmod(0o555)
    await place.helpers.clear([container.container_id])
    assert with_argument(tag) == []
