"""Creations of containers with faults at every step: one pass later nothing is there that should not be (W1 to W4).

`CREATIONS` is how many, at least; `FAULT_SEED` which faults meet which steps, and in which order.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.faults.creations import (
    CREATING,
    CREATION,
    DELETED,
    OUTCOMES,
    READY,
    REMOVING,
    Chances,
    Moment,
    Round,
)
from tests.faults.wharf import Wharf
from tests.gates import Gate

_CREATIONS = int(os.environ.get("CREATIONS", "30"))
_SEED = int(os.environ.get("FAULT_SEED", "1"))
_LEAST = 3

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(10 * _CREATIONS + 120)]


async def test_one_pass_after_a_fault_there_is_what_lives_and_nothing_else(ground: Wharf) -> None:
    creating, removing = Chances(_SEED, CREATING), Chances(_SEED, REMOVING)
    names = (f"w{number}" for number in count(1))
    while creating.met.total() < _CREATIONS:
        made = creating.next()
        workspaces = [name for _, name in zip(made.steps, names, strict=False)]
        with _told(made):
            await _create(ground, workspaces, made)
        removed = removing.next()
        with _told(removed):
            await _remove(ground, workspaces, removed)
    assert min(creating.met[step] for step in CREATION) >= min(_LEAST, _CREATIONS // len(CREATION))
    assert not ground.entries()


@contextlib.contextmanager
def _told(which: Round) -> Iterator[None]:
    """What was tried is said with what failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{which}; FAULT_SEED={_SEED}")
        raise


async def _create(wharf: Wharf, workspaces: list[str], made: Round) -> None:
    gates: dict[str, Gate] = {}
    for workspace_id, step in zip(workspaces, made.steps, strict=True):
        gates[workspace_id] = wharf.gates.hold(step)
        await wharf.ask(workspace_id)
        await gates[workspace_id].reached()
    await made.fault(Moment(wharf, gates))
    await _settle(wharf, workspaces, OUTCOMES.get(made.fault, READY))


async def _remove(wharf: Wharf, workspaces: list[str], removed: Round) -> None:
    left = [each for each in workspaces if (await wharf.row(each))["state"] != DELETED]
    gates: dict[str, Gate] = {}
    for workspace_id, step in zip(left, removed.steps, strict=False):
        gates[workspace_id] = wharf.gates.hold(step)
        await wharf.client.delete(workspace_id)
        await gates[workspace_id].reached()
    if gates:
        await removed.fault(Moment(wharf, gates))
        await _settle(wharf, left, DELETED)


async def _settle(wharf: Wharf, workspaces: list[str], outcome: str) -> None:
    for workspace_id in workspaces:
        await wharf.settled(workspace_id)
        row = await wharf.row(workspace_id)
        assert row["state"] == outcome, (workspace_id, row["state_reason"])
    await wharf.judge()
