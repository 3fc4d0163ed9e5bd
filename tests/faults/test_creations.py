"""Creations of containers with faults at every step: one pass later nothing is there that should not be (W1 to W4).

`CREATIONS` is how many, at least; `FAULT_SEED` which faults meet which steps, and in which order. From
as many creations on as there are meetings of a fault and a step, each of these meetings has to happen.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count, islice

import pytest
from moorage.common.v1 import provision_pb2

from tests.faults.chances import Chances, Round
from tests.faults.creations import (
    CREATING,
    CREATION,
    DELETED,
    OF_OWN_DIRECTORIES,
    OUTCOMES,
    OWN_DIRECTORIES_ONLY,
    READY,
    REMOVAL,
    REMOVING,
    SET_UP,
    Hold,
    Moment,
)
from tests.faults.preparation import Preparation
from tests.faults.wharf import Wharf

_CREATIONS = int(os.environ.get("CREATIONS", "30"))
_SEED = int(os.environ.get("FAULT_SEED", "1"))
_LEAST = 3
_IS_WHOLE = sum(map(len, CREATING.values())) <= _CREATIONS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(10 * max(_CREATIONS, 40) + 120)]


async def test_one_pass_after_a_fault_there_is_what_lives_and_nothing_else(ground: Wharf) -> None:
    voyage = _Voyage(ground)
    try:
        while voyage.goes_on:
            await voyage.leg()
    finally:
        print(f"FAULT_SEED={_SEED}", voyage.making, voyage.removing, voyage.directories, sep="\n\n")
    assert min(voyage.making.of_steps[step] for step in CREATION) >= _LEAST
    assert min(voyage.removing.of_steps[step] for step in REMOVAL) >= _LEAST
    assert set(voyage.making.of_faults) == set(CREATING)
    assert set(voyage.removing.of_faults) == set(REMOVING)
    assert min(voyage.directories.values()) >= _LEAST
    assert voyage.is_whole or not _IS_WHOLE
    assert not ground.entries()


class _Voyage:
    """Creations and removals, one round after the other."""

    def __init__(self, wharf: Wharf) -> None:
        self.making = Chances(_SEED, CREATING, CREATION)
        self.removing = Chances(_SEED, REMOVING, REMOVAL)
        self.directories = Counter({"supplied": 0, "own": 0})
        self._wharf = wharf
        self._names = (f"w{number}" for number in count(1))
        self._supplied: set[str] = set()

    @property
    def goes_on(self) -> bool:
        """Whether there were too few."""
        return (
            self.making.met.total() < _CREATIONS
            or not (self.making.are_met(_LEAST) and self.removing.are_met(_LEAST))
            or (_IS_WHOLE and not self.is_whole)
        )

    @property
    def is_whole(self) -> bool:
        """Whether each fault met each step."""
        return self.making.is_whole and self.removing.is_whole

    async def leg(self) -> None:
        """One round of creations, and of the removal of what came of them."""
        made = self.making.next()
        workspaces = list(islice(self._names, len(made.steps)))
        with _told(made):
            await self._create(dict(zip(workspaces, made.steps, strict=True)), made)
        if left := [each for each in workspaces if (await self._wharf.row(each))["state"] != DELETED]:
            removed = self.removing.next()
            with _told(removed):
                await self._remove(left, removed)

    async def _create(self, steps: Mapping[str, str], made: Round) -> None:
        gates: dict[str, Hold] = {}
        for workspace_id, step in steps.items():
            gates[workspace_id] = await self._begin(workspace_id, step, made)
            await gates[workspace_id].reached()
            self.making.happened(made.fault, step)
        await made.fault(Moment(self._wharf, gates))
        await self._settle(list(steps), OUTCOMES.get(made.fault, READY))

    async def _begin(self, workspace_id: str, step: str, made: Round) -> Hold:
        if step == SET_UP:
            preparation = Preparation(self._wharf.directory(workspace_id))
            setup = provision_pb2.SetupCommand(command=preparation.command)
            await self._ask(workspace_id, setup=setup)
            return preparation
        gate = self._wharf.gates.hold(step)
        # Every other one that can.
        if made.fault not in OWN_DIRECTORIES_ONLY and self.directories["supplied"] < self.directories["own"]:
            self._supplied.add(workspace_id)
        await self._ask(workspace_id)
        return gate

    async def _ask(self, workspace_id: str, **spec: provision_pb2.SetupCommand) -> None:
        is_supplied = workspace_id in self._supplied
        self.directories["supplied" if is_supplied else "own"] += 1
        await self._wharf.ask(workspace_id, source=self._wharf.source if is_supplied else None, **spec)

    async def _remove(self, left: list[str], removed: Round) -> None:
        gates: dict[str, Hold] = {}
        for step in removed.steps:
            if workspace_id := next(self._candidates(set(left) - set(gates), step), None):
                gate = gates[workspace_id] = self._wharf.gates.hold(step)
                await self._wharf.client.delete(workspace_id)
                await gate.reached()
                self.removing.happened(removed.fault, step)
        await removed.fault(Moment(self._wharf, gates))
        for workspace_id in set(left) - set(gates):
            await self._wharf.client.delete(workspace_id)
        await self._settle(left, DELETED)

    def _candidates(self, workspaces: set[str], step: str) -> Iterator[str]:
        """Those that come to a step; the ones that do not come to all are first."""
        if step not in OF_OWN_DIRECTORIES:
            yield from sorted(workspaces & self._supplied)
        yield from sorted(workspaces - self._supplied)

    async def _settle(self, workspaces: list[str], outcome: str) -> None:
        for workspace_id in workspaces:
            await self._wharf.settled(workspace_id)
            row = await self._wharf.row(workspace_id)
            assert row["state"] == outcome, (workspace_id, row["state_reason"])
        await self._wharf.judge()


@contextlib.contextmanager
def _told(which: Round) -> Iterator[None]:
    """What was tried is said with what failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{which}; FAULT_SEED={_SEED}")
        raise
