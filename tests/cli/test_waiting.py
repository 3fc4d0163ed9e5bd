"""Turns that wait, run where no terminal shows what for."""

from __future__ import annotations

import asyncio
import json
import os

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli import waiting
from services.cli.activity import Seen
from tests.cli.programs import Place
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(120)

PREPARING = turn_pb2.TURN_PHASE_PREPARING_WORKSPACE
AWAY = "docker is unavailable: no engine at unix:///var/run/docker.sock: Connection refused"


def waits(reason: str, phase: turn_pb2.TurnPhase.ValueType = PREPARING) -> Seen:
    return Seen(session_pb2.Turn(state=turn_pb2.TURN_STATE_RUNNING, phase=phase, waiting_reason=reason))


async def heard(monkeypatch: pytest.MonkeyPatch, *looks: Seen | None) -> list[str]:
    """What is told when looks at the turn see this; None: it cannot be looked at."""
    monkeypatch.setattr(waiting, "_PAUSE", 0.0)
    told: list[str] = []
    left = list(looks)

    async def look() -> Seen:
        if not left:
            told.append("looked at again")
            await asyncio.Event().wait()
        if (seen := left.pop(0)) is None:
            raise grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), grpc.aio.Metadata())
        return seen

    async with waiting.told(told.append, look):
        await eventually(lambda: not left, what="all was seen")
        for _ in range(10):
            await asyncio.sleep(0)
    return told


async def test_a_reason_that_lasts_is_told_once_and_the_next_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passing, away, runner = waits("for the workspace"), waits(AWAY), waits("no runner is live")
    told = await heard(
        monkeypatch, None, passing, away, away, None, away, waits(""), away, runner, runner, runner, away
    )
    assert told == [f"the turn waits: {AWAY}", "the turn waits: no runner is live", "looked at again"]


async def test_once_an_agent_was_started_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    prompted = waits("for the agent", turn_pb2.TURN_PHASE_PROMPTED)
    assert await heard(monkeypatch, waits("for the workspace"), waits("for the workspace"), prompted) == [
        "the turn waits for the workspace"
    ]


async def test_a_program_that_runs_a_turn_is_told_beside_its_output(here: Place) -> None:
    go = here.work / "go"
    # It ends also when nobody is told anything.
    setup = f"sh -c 'i=0; until [ -e {go} ] || [ $((i += 1)) -gt 300 ]; do sleep 0.05; done'"
    turn = here.start("run", "say hello", "--empty", "--setup", setup, "--json")
    told = json.loads(turn.told())["hint"]
    go.touch()
    code, output, errors = turn.ended()
    assert told.startswith("the turn waits: ")
    assert "PROVISIONING" in told
    assert (code, errors) == (0, "")
    assert json.loads(output.splitlines()[-1])["ended"]["state"] == "TURN_STATE_COMPLETED"
    assert here.moorage("session", "close").returncode == os.EX_OK
