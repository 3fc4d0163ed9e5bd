"""Calls of an engine: off the event loop, bounded, and honest about what is not known (W3, W5)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import docker
import pytest
import requests

from services.workspace.docker import engine as engines
from services.workspace.docker.engine import Away, Busy, Engine
from services.workspace.docker.threads import Threads
from services.workspace.providers.registry import Unasked
from tests.conditions import eventually
from tests.engines import PrivateEngine, shared_engine


@pytest.fixture
async def calls() -> AsyncIterator[Engine]:
    """Of the shared engine, two at a time."""
    engine = Engine(shared_engine(), threads=2, timeout=30.0)
    yield engine
    engine.close()


def _ping(client: docker.DockerClient) -> bool:
    return bool(client.ping())


async def test_no_call_is_made_on_the_event_loop(calls: Engine) -> None:
    """Whoever connects in the loop's thread waits there, if the engine is paused, with everybody else."""
    address = calls.address.removeprefix("unix://")
    threads: set[int] = set()
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "socket.connect" and arguments[1] == address:
            threads.add(threading.get_ident())

    sys.addaudithook(watch)
    await asyncio.gather(*(calls.call(_ping) for _ in range(20)))
    watching = False
    assert len(threads) in (1, 2)
    assert threading.get_ident() not in threads


async def test_what_is_refused_is_told_and_means_that_it_answers(calls: Engine) -> None:
    with pytest.raises(docker.errors.NotFound):
        await calls.call(lambda client: client.containers.get("there-is-no-such-container"))
    assert not calls.cause


async def test_what_the_engine_fails_at_is_not_known(calls: Engine) -> None:
    def fail(_: docker.DockerClient) -> None:
        response = requests.Response()
        response.status_code = 500
        raise docker.errors.APIError("it broke", response=response)

    with pytest.raises(Unasked):
        await calls.call(fail)
    assert not calls.cause


async def test_an_engine_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/socket", threads=2, timeout=30.0)
    with pytest.raises(Away, match="no engine at"):
        await engine.call(_ping)
    assert "no engine at" in engine.cause
    await engine.look()
    engine.close()


@pytest.mark.timeout(120)
async def test_it_is_told_when_an_engine_is_back(engine: PrivateEngine) -> None:
    back = asyncio.Event()
    calls = Engine(engine.address, threads=2, timeout=2.0)
    calls.on_back(back.set)
    await calls.look()
    engine.pause()
    await calls.look()
    assert "does not answer" in calls.cause
    engine.resume()
    await eventually(lambda: _looks_back(calls), within=30)
    assert back.is_set()
    back.clear()
    await engine.kill()
    await calls.look()
    assert "no engine" in calls.cause
    await engine.start()
    await calls.look()
    assert back.is_set()
    calls.close()


async def test_a_return_is_noticed_soon_whoever_missed_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever waits for it to be back waits until it is looked at anyway."""
    monkeypatch.setattr(engines, "_LOOK", 3600.0)
    monkeypatch.setattr(engines, "_LOOK_AGAIN", 0.01)
    link, target = tmp_path / "socket", shared_engine().removeprefix("unix://")
    link.symlink_to(target)
    engine, back = Engine(f"unix://{link}", threads=1, timeout=30.0), asyncio.Event()
    engine.on_back(back.set)
    await engine.look()
    resting = asyncio.create_task(engine.rest())
    link.unlink()
    with pytest.raises(Away):
        await engine.call(_ping)
    await resting
    await engine.look()
    assert engine.cause
    link.symlink_to(target)
    await engine.rest()
    await engine.look()
    assert back.is_set()
    engine.close()


async def test_there_are_never_more_threads_than_allowed() -> None:
    threads, gate = Threads(3), threading.Event()
    others = set(threading.enumerate())
    futures = [threads.submit(gate.wait) for _ in range(30)]
    await eventually(lambda: sum(each.running() for each in futures) == 3)
    ours = set(threading.enumerate()) - others
    assert len(ours) == 3
    # What has not begun can be taken back.
    assert futures[-1].cancel()
    gate.set()
    for each in futures[:-1]:
        assert await asyncio.wrap_future(each)
    threads.close()
    await eventually(lambda: not any(each.is_alive() for each in ours))


async def test_a_failure_in_a_thread_is_its_callers() -> None:
    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wrap_future(threads.submit(lambda: 1 // 0))
    assert await asyncio.wrap_future(threads.submit(lambda: "next")) == "next"
    threads.close()


async def test_a_call_that_nobody_waits_for_any_more_is_not_begun(calls: Engine) -> None:
    gate, begun = threading.Event(), threading.Event()
    blocking = [asyncio.create_task(calls.call(lambda _: gate.wait())) for _ in range(2)]
    waiting = asyncio.create_task(calls.call(lambda _: begun.set()))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    gate.set()
    await asyncio.gather(*blocking)
    await calls.call(_ping)
    assert not begun.is_set()


async def test_a_call_that_others_hold_up_says_nothing_about_the_engine() -> None:
    engine = Engine(shared_engine(), threads=1, timeout=0.2)
    gate = threading.Event()
    first = engine.begin(lambda _: gate.wait())
    with pytest.raises(Busy):
        await engine.call(_ping)
    assert not engine.cause
    gate.set()
    assert await asyncio.wrap_future(first)
    engine.close()


async def _looks_back(calls: Engine) -> bool:
    await calls.look()
    return not calls.cause
