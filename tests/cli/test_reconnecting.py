"""`run` and `watch` while the session service goes away and comes back: no record twice, none missing."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from services.cli import patience
from services.cli.patience import Cut, Patience
from tests.cli.programs import Place, Program
from tests.cli.restartable import Restartable, restartable

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def services(place: Place, database_url: str) -> AsyncIterator[Restartable]:
    """Services without a session service yet."""
    async with restartable(place.work, place.state_home / "services", database_url) as running:
        yield running


def reading(program: Program) -> asyncio.Future[tuple[int, str, str]]:
    """Its end, awaited beside other things."""
    return asyncio.ensure_future(asyncio.to_thread(program.ended))


def events_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


async def stored(place: Place, services: Restartable, session_id: str) -> list[dict[str, Any]]:
    """The transcript as it is stored."""
    arguments = ("--address", services.address, "watch", session_id, "--no-follow", "--json")
    shown = await asyncio.to_thread(place.moorage, *arguments)
    assert shown.returncode == 0
    return events_of(shown.stdout)


async def test_a_turn_is_followed_over_a_kill_and_a_restart(place: Place, services: Restartable) -> None:
    await services.start()
    run = place.start("--address", services.address, "run", "count to 400 every 0.02", "--json")
    events = [await asyncio.to_thread(run.document) for _ in range(6)]
    session_id = events[0]["admitted"]["sessionId"]
    watch = place.start("--address", services.address, "watch", session_id, "--json")
    watched = [await asyncio.to_thread(watch.document)]

    await services.kill()
    assert "trying again" in await asyncio.to_thread(watch.told)
    await services.start()
    events.append(await asyncio.to_thread(run.document))
    await services.session.stop()
    await services.start()

    code, output, errors = await reading(run)
    events += events_of(output)
    assert code == 0, errors
    assert [next(iter(event)) for event in (events[0], *events[-1:])] == ["admitted", "ended"]
    assert all("record" in event for event in events[1:-1])
    records = [event["record"] for event in events[1:-1]]
    assert records == await stored(place, services, session_id)
    counted = "".join(
        record["body"].get("agentMessage", NOTHING)["content"]["text"]["text"] for record in records
    )
    assert counted.split() == [str(number) for number in range(1, 401)]

    while len(watched) < len(records):
        watched.append(await asyncio.to_thread(watch.document))
    assert watched == records
    watch.signal(signal.SIGTERM)
    assert (await reading(watch))[:2] == (143, "")


async def test_a_turn_whose_admission_was_not_answered_is_not_started_twice(
    place: Place, services: Restartable
) -> None:
    await services.start(MOORAGE_FAILPOINTS="session.start_turn.after_commit=kill")
    run = place.start("--address", services.address, "run", "say once", "--json")
    await services.until_killed()
    assert "trying again" in await asyncio.to_thread(run.told)
    await services.start()
    code, output, _ = await reading(run)
    events = events_of(output)
    assert code == 0
    records = await stored(place, services, events[0]["admitted"]["sessionId"])
    assert [event["record"] for event in events[1:-1]] == records
    assert sum("userMessage" in record["body"] for record in records) == 1
    assert sum("turnStarted" in record["body"] for record in records) == 1


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PATIENCE", 0.05)
    told: list[str] = []
    waiting = Patience(told.append)
    with pytest.raises(Cut, match="lost the session service: gone") as caught:
        while True:
            await waiting.spend("gone")
    assert caught.value.exit == 6
    assert len(told) == 1
    waiting.reward()
    await waiting.spend("gone again")
    assert len(told) == 2


def silent() -> grpc.aio.AioRpcError:
    """What gRPC says when nobody listens."""
    words = "connections to all backends failing; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect"
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), words)


async def test_a_service_that_does_not_answer_is_told_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PATIENCE", 0.0)
    told: list[str] = []
    with pytest.raises(Cut) as caught:
        await Patience(told.append, "the session service at 127.0.0.1:1").spend_on(silent())
    assert str(caught.value) == "lost the session service at 127.0.0.1:1: it does not answer"
    assert told == ["lost the session service at 127.0.0.1:1 (it does not answer); trying again for 0 s"]


NOTHING: dict[str, Any] = {"content": {"text": {"text": ""}}}
