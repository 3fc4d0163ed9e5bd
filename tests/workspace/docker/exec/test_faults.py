"""What goes wrong around an exec in a container: it is dead in the end, and that is known (F6)."""

from __future__ import annotations

import asyncio
import math
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import docker
import pytest

from services.workspace.docker.engine import Engine
from services.workspace.docker.exec import ending
from services.workspace.docker.exec.helper import HELPER_PATH, why_missing
from services.workspace.docker.exec.helpers import Engine as EngineCalls
from services.workspace.docker.exec.helpers import Helpers, Unfit
from services.workspace.exec.marker import Marker
from services.workspace.exec.process import Outcome, PlaceLost, PlaceStopped, Process, ProcessLost
from services.workspace.providers.registry import Unasked
from tests.conditions import eventually
from tests.engines import PrivateEngine, private_engine, shared_engine
from tests.workspace.conformance.places import Container, DockerPlace, container_on, run, start
from tests.workspace.processes import appears, with_argument

T = TypeVar("T")


@pytest.fixture
def tag() -> str:
    """For how long the processes of a test sleep: no others do."""
    return f"6{secrets.randbelow(10**8):08}"


@pytest.fixture
async def container() -> AsyncIterator[Container]:
    """On the engine that all share."""
    async with container_on(_address(), mem_limit="64m", memswap_limit="64m") as container:
        yield container


@pytest.fixture
async def place(container: Container) -> AsyncIterator[DockerPlace]:
    """In that container."""
    place = DockerPlace(container)
    yield place
    await place.close()


@pytest.fixture
async def engine() -> AsyncIterator[PrivateEngine]:
    """One that can be harmed."""
    _address()
    async with private_engine() as engine:
        yield engine


def _address() -> str:
    address = shared_engine()
    if missing := why_missing("amd64"):
        pytest.skip(missing)
    return address


async def family(place: DockerPlace, tag: str) -> Process:
    """One in the group, one that left it, one that cleared its environment as well."""
    process = await start(
        place, "sh", "-c", f"sleep {tag} & setsid sleep {tag} & setsid env -i /bin/sleep {tag} & wait"
    )
    await appears(tag, 3)
    return process


async def test_a_command_that_is_killed_for_want_of_memory_says_so(place: DockerPlace) -> None:
    ran = await run(place, "tail", "/dev/zero")
    assert ran.outcome == Outcome(None, signal.SIGKILL, killed=False, out_of_memory=True)


async def test_a_child_that_is_killed_for_want_of_memory_is_told_besides_the_exit_code(
    place: DockerPlace,
) -> None:
    ran = await run(place, "sh", "-c", "tail /dev/zero; exit 5")
    assert ran.outcome == Outcome(5, None, killed=False, out_of_memory=True)
    # What comes after it has nothing to do with that.
    assert (await run(place, "true")).outcome == Outcome(0, None, killed=False)


async def test_a_command_cannot_look_into_its_helper(place: DockerPlace) -> None:
    ran = await run(
        place, "sh", "-c", "cat /proc/$PPID/environ || echo no; ls -l /proc/$PPID/fd/0 || echo no"
    )
    assert ran.stdout == b"no\nno\n"


@pytest.mark.parametrize("name", ["KILL", "SEGV"])
async def test_a_command_that_kills_its_helper_dies_with_it(place: DockerPlace, tag: str, name: str) -> None:
    process = await start(
        place, "sh", "-c", f"setsid env -i /bin/sleep {tag} & read go; kill -{name} $PPID; sleep {tag}"
    )
    process.streams.stdin.write_now(memoryview(b"go\n"))
    with pytest.raises(ProcessLost):
        await process.ended
    assert await process.kill_left("") is None
    assert with_argument(tag) == []


async def test_a_command_that_stops_its_helper_is_killed_all_the_same(place: DockerPlace, tag: str) -> None:
    process = await start(place, "sh", "-c", f"setsid sleep {tag} & read go; kill -STOP $PPID; sleep {tag}")
    process.streams.stdin.write_now(memoryview(b"go\n"))
    await appears(tag, 2)
    process.kill()
    with pytest.raises(ProcessLost):
        await process.ended
    assert await process.kill_left("") is None
    assert with_argument(tag) == []


async def test_a_stopped_helper_that_is_late_is_ended_by_the_first_process(
    place: DockerPlace, tag: str
) -> None:
    place.seconds = 1.0
    process = await start(place, "sh", "-c", f"setsid sleep {tag} & read go; kill -STOP $PPID; sleep {tag}")
    process.streams.stdin.write_now(memoryview(b"go\n"))
    await appears(tag, 2)
    await eventually(lambda: not with_argument(tag), within=15)


async def test_nothing_inside_can_end_the_first_process(place: DockerPlace) -> None:
    ran = await run(
        place, "sh", "-c", "for name in STOP KILL INT TERM; do kill -$name 1; done; cat /proc/1/stat"
    )
    assert ran.stdout.split()[2] in (b"S", b"R")
    assert (await run(place, "true")).outcome.exit_code == 0


async def test_a_removed_container_is_told_as_that(
    place: DockerPlace, container: Container, tag: str
) -> None:
    process = await family(place, tag)
    await asyncio.to_thread(container.remove)
    with pytest.raises(ProcessLost):
        await process.ended
    with pytest.raises(PlaceLost, match="gone|removed"):
        await process.kill_left("")
    assert with_argument(tag) == []


async def test_a_container_that_ended_is_told_as_that(
    place: DockerPlace, container: Container, tag: str
) -> None:
    process = await family(place, tag)
    await asyncio.to_thread(container.engine.api.stop, container.container_id, 10)
    with pytest.raises(ProcessLost):
        await process.ended
    with pytest.raises(PlaceStopped, match="exited"):
        await process.kill_left("")
    assert with_argument(tag) == []


async def test_a_container_that_was_killed_for_want_of_memory_says_so(
    place: DockerPlace, container: Container, tag: str
) -> None:
    # What an engine says of one whose first process the kernel has killed: that cannot be had otherwise.
    process = await start(place, "sh", "-c", f"tail /dev/zero; sleep {tag}")
    await appears(tag)
    await asyncio.to_thread(container.engine.api.kill, container.container_id)
    with pytest.raises(ProcessLost):
        await process.ended
    assert await process.kill_left("") == Outcome(None, signal.SIGKILL, killed=False, out_of_memory=True)


async def test_what_an_earlier_start_left_is_dead_before_anything_new_runs(
    place: DockerPlace, container: Container, tag: str
) -> None:
    process = await family(place, tag)
    successor = DockerPlace(container, start_name="2")
    await run(successor, "true")
    assert with_argument(tag) == []
    with pytest.raises(ProcessLost):
        await process.ended
    await successor.close()


async def test_a_start_ends_what_an_earlier_one_left_before_it_serves(
    place: DockerPlace, container: Container, tag: str
) -> None:
    await family(place, tag)
    successor = DockerPlace(container, start_name="2")
    await successor.helpers.clear([container.container_id])
    assert with_argument(tag) == []


async def test_a_start_whose_time_is_over_ends_nothing_of_a_later_one(
    place: DockerPlace, container: Container, tag: str
) -> None:
    """It was frozen, say, and goes on where it was about to start something."""
    frozen = DockerPlace(container, start_name="0")
    await family(place, tag)
    frozen.seconds = -1.0
    with pytest.raises(Unasked, match="does not serve any more"):
        await frozen.spawn()
    assert len(with_argument(tag)) == 3
    await frozen.close()


async def test_another_instance_is_left_alone(container: Container, place: DockerPlace, tag: str) -> None:
    await family(place, tag)
    made = container.ask(HELPER_PATH, "end", "deployment/inst/")
    assert (made, len(with_argument(tag))) == ("", 3)
    container.ask(HELPER_PATH, "end", "deployment/instance/")
    assert with_argument(tag) == []


async def test_a_given_up_start_leaves_nothing(place: DockerPlace, container: Container) -> None:
    for delay in range(8):
        spawning = asyncio.create_task(place.spawn())
        for _ in range(delay):
            await asyncio.sleep(0.01)
        spawning.cancel()
        await asyncio.wait({spawning})
        if not spawning.cancelled():
            spawning.result().kill()
    await eventually(lambda: "run" not in container.ask("ps", "-o", "args"), what="no helper is left")


async def test_a_paused_container_is_no_shelter(place: DockerPlace, container: Container, tag: str) -> None:
    process = await family(place, tag)
    await asyncio.to_thread(container.engine.api.pause, container.container_id)
    process.kill()
    with pytest.raises(ProcessLost):
        await process.ended
    assert await process.kill_left("") is None
    assert with_argument(tag) == []


async def test_a_paused_engine_cannot_keep_a_command_alive(engine: PrivateEngine, tag: str) -> None:
    async with container_on(engine.address) as container:
        place = DockerPlace(container)
        place.seconds = 2.0
        process = await family(place, tag)
        engine.pause()
        try:
            await eventually(lambda: not with_argument(tag), within=15)
        finally:
            engine.resume()
        # It had reported that before anybody asked.
        assert (await process.ended).killed


async def test_a_kill_that_no_engine_passes_on_is_known_to_be_done(engine: PrivateEngine, tag: str) -> None:
    async with container_on(engine.address, timeout=1.0) as container:
        place = DockerPlace(container)
        place.seconds = 3.0
        process = await family(place, tag)
        engine.pause()
        try:
            process.kill()
            with pytest.raises(ProcessLost):
                await process.ended
            assert await process.kill_left("") is None
            assert with_argument(tag) == []
        finally:
            engine.resume()


async def test_a_killed_engine_takes_its_execs_along(engine: PrivateEngine, tag: str) -> None:
    async with container_on(engine.address) as container:
        place = DockerPlace(container)
        # What is between engine and container keeps the helper's input open.
        place.seconds = 3.0
        process = await family(place, tag)
        await engine.kill()
        with pytest.raises(ProcessLost):
            await process.ended
        await eventually(lambda: not with_argument(tag), within=15)
        looking = asyncio.create_task(process.kill_left(""))
        await engine.start()
        with pytest.raises(PlaceLost):
            await looking


async def test_where_no_helper_is_nothing_was_started(place: DockerPlace, container: Container) -> None:
    (container.helper / "exec").unlink()
    with pytest.raises(Unfit, match="exec"):
        await place.spawn()


async def test_a_helper_of_another_version_is_told_from_none_that_answers(
    place: DockerPlace, container: Container
) -> None:
    ready = "".join(f"\\{byte:03o}" for byte in b"h\0\0\0\x0c\0\0\0\1" + bytes(8))
    _replace_helper(container, f"#!/bin/sh\nprintf '{ready}'\ncat\n")
    with pytest.raises(Unfit, match="version 1"):
        await place.spawn()


@pytest.mark.parametrize("program", ["#!/bin/sh\necho nothing that makes sense\n", "#!/bin/sh\nexit 1\n"])
async def test_what_is_no_helper_has_started_nothing(
    place: DockerPlace, container: Container, program: str
) -> None:
    _replace_helper(container, program)
    with pytest.raises(Unasked):
        await place.spawn()


async def test_a_container_that_is_paused_while_it_is_looked_into_is_not_taken_for_dead(
    place: DockerPlace, container: Container, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine answers, and says that the look still lasts."""
    monkeypatch.setattr(ending, "_GRACE", 2.0)
    monkeypatch.setattr(ending, "_LONGEST_SILENCE", 2.0)
    await family(place, tag)
    _replace_helper(container, f"#!/bin/sh\nexec sleep {tag}1\n")
    api, name = container.engine.api, container.container_id
    ending_it = asyncio.create_task(ending.until_dead(container.engine, name, "deployment/", _now() + 1))
    await appears(f"{tag}1", 1)
    await asyncio.to_thread(api.pause, name)

    async def goes_on() -> bool:
        found = await asyncio.to_thread(api.inspect_container, name)
        return not found["State"]["Paused"]

    try:
        await eventually(goes_on, what="it is not paused any more")
        assert len(with_argument(tag)) == 3
    finally:
        ending_it.cancel()
        await asyncio.wait({ending_it})


async def test_what_no_helper_can_end_ends_with_its_container(
    place: DockerPlace, container: Container, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that works says nothing else of it, for ever."""
    monkeypatch.setattr(ending, "_GRACE", 0.5)
    monkeypatch.setattr(ending, "_LONGEST_SILENCE", 0.5)
    await family(place, tag)
    (container.helper / "exec").unlink()
    with pytest.raises(PlaceStopped, match="could not be killed"):
        await ending.until_dead(container.engine, container.container_id, "deployment/", _now() + 60)
    assert with_argument(tag) == []


async def test_an_engine_is_not_asked_all_the_time_whether_something_has_ended(container: Container) -> None:
    _replace_helper(container, "#!/bin/sh\nexec sleep 1\n")
    counting = Counting(container.engine)
    assert await ending.end(counting, container.container_id, "deployment/")
    assert counting.calls < 12


class Counting:
    """An engine, and how often it was called."""

    def __init__(self, engine: EngineCalls) -> None:
        self._engine = engine
        self.calls = 0

    async def call(self, work: Callable[[docker.DockerClient], T]) -> T:
        self.calls += 1
        return await self._engine.call(work)


async def test_what_does_not_end_in_a_container_holds_up_no_other_call(
    container: Container, tag: str
) -> None:
    """It may be paused at any moment, and nobody knows for how long."""
    _replace_helper(container, f"#!/bin/sh\nexec sleep {tag}\n")
    calls = Engine(_address(), threads=1, timeout=10.0)
    helpers = Helpers(calls, lambda: math.inf)
    helpers.prepare(Marker("deployment", "instance", "1"))
    spawning = helpers.spawn(container.container_id, container.mount, "/tmp", None)
    waiting = [asyncio.create_task(each) for each in (helpers.clear([container.container_id]), spawning)]
    try:
        await appears(tag, 2)
        await asyncio.to_thread(container.engine.api.pause, container.container_id)
        assert await calls.call(lambda client: bool(client.ping()))
        assert not any(each.done() for each in waiting)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        calls.close()


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _replace_helper(container: Container, program: str) -> None:
    path = container.helper / "exec"
    path.unlink()
    path.write_text(program)
    path.chmod(0o555)
