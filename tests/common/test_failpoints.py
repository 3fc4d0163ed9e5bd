"""Failpoints: by name, by turn, and through a directory while the process runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.common import failpoints
from services.common.failpoints import FailpointError, FailpointSyntaxError, failpoint, parse
from services.common.logs import bind
from tests.gates import Gates


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gates:
    """All failpoints of this process."""
    gates = Gates(tmp_path / "gates")
    for name, action in parse(gates.failpoints).items():
        monkeypatch.setitem(failpoints._active, name, action)
    return gates


@pytest.mark.parametrize("text", ["a", "a=", "a=pause:relative", "a=gate:relative", "a=explode"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(FailpointSyntaxError, match="has no action"):
        parse(text)


async def test_an_action_of_a_turn_goes_before_that_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, action in parse("here@t=error; there=error").items():
        monkeypatch.setitem(failpoints._active, name, action)
    await failpoint("here")
    await failpoint("here", "other")
    await failpoint("elsewhere", "t")
    for name, turn in (("here", "t"), ("there", ""), ("there", "t")):
        with pytest.raises(FailpointError, match=name):
            await failpoint(name, turn)


async def test_a_gate_holds_its_turn_until_it_is_removed_and_no_other(gates: Gates) -> None:
    gate = gates.hold("here", "t")
    await failpoint("here")
    await failpoint("here", "other")
    assert not gate.was_reached

    async def turn() -> None:
        bind(turn="t")
        await failpoint("here")

    held = asyncio.create_task(turn())
    await gate.reached()
    assert not held.done()
    gate.release()
    await held
    await failpoint("here", "t")


async def test_a_gate_says_what_happens_there(gates: Gates) -> None:
    gate = gates.hold("here", action="error")
    with pytest.raises(FailpointError):
        await failpoint("here", "t")
    assert gate.was_reached
    gate.release()
    await failpoint("here", "t")
    again = gates.hold("here")
    assert not again.was_reached
