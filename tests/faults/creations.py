"""What can go wrong with workspaces in containers: at which steps, and how."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from services.common.errors import MoorageError
from tests.faults.wharf import Wharf, fill
from tests.gates import Gate

# In their order; each is a failpoint.
CREATION = (
    "workspace.provision.before_make",
    "workspace.docker.before_directory",
    "workspace.docker.before_create",
    "workspace.docker.after_create",
    "workspace.docker.after_helper",
    "workspace.docker.before_start",
    "workspace.docker.after_start",
    "workspace.provision.after_make",
)
REMOVAL = (
    "workspace.docker.before_remove",
    "workspace.docker.after_remove",
    "workspace.docker.before_directory_remove",
    "workspace.remove.after_remove",
)
_AT_ONCE = 3

READY, FAILED, DELETED = "READY", "FAILED", "DELETED"


@dataclass(frozen=True, slots=True)
class Moment:
    """The work on some workspaces, by their ids, is held, each at a step of its own."""

    wharf: Wharf
    gates: Mapping[str, Gate]

    def release(self) -> None:
        """Let it go on."""
        for gate in self.gates.values():
            gate.release()

    async def noticed(self) -> None:
        """What goes wrong is known of each, or it does not matter to it."""
        for workspace_id in self.gates:
            await self.wharf.noticed(workspace_id)

    async def delete(self) -> None:
        """None is wanted any more."""
        for workspace_id in self.gates:
            await self.wharf.client.delete(workspace_id)

    @contextlib.asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """It goes on while the engine hangs, which is noticed when the block begins."""
        self.wharf.engine.pause()
        try:
            self.release()
            await self.noticed()
            yield
        finally:
            self.wharf.engine.resume()


Fault = Callable[[Moment], Awaitable[None]]


async def clients_cancel(moment: Moment) -> None:
    """Whoever waits goes away, and nothing is wanted any more."""
    waiting = asyncio.gather(*map(moment.wharf.client.settled, moment.gates))
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError, MoorageError):
        await waiting
    await moment.delete()
    moment.release()


async def clients_vanish(moment: Moment) -> None:
    """Nobody says anything any more, and no session is ever stored."""
    moment.release()
    for workspace_id in moment.gates:
        await moment.wharf.settled(workspace_id)
        await moment.wharf.pass_time(workspace_id, "11 minutes")
    await moment.wharf.client.collect()


async def the_engine_is_killed(moment: Moment) -> None:
    """SIGKILL; started again when that is noticed."""
    await moment.wharf.engine.kill()
    moment.release()
    await moment.noticed()
    await moment.wharf.engine.start()


async def the_engine_is_paused(moment: Moment) -> None:
    """SIGSTOP for a while: what it was asked for it does later."""
    async with moment.hanging():
        pass


async def the_service_is_killed(moment: Moment) -> None:
    """Kill -9, and started again."""
    await moment.wharf.service.kill()
    moment.release()
    await moment.wharf.start()


async def the_service_is_killed_while_the_engine_hangs(moment: Moment) -> None:
    """What the dead service has asked for is done when its successor works already."""
    async with moment.hanging():
        await moment.wharf.service.kill()
    await moment.wharf.start()


async def clients_cancel_while_the_engine_hangs(moment: Moment) -> None:
    """Nothing is wanted any more while nobody knows what the engine makes of it."""
    async with moment.hanging():
        await moment.delete()


async def starts_are_refused(moment: Moment) -> None:
    """The engine made containers and cannot start them, as their directories are gone."""
    for workspace_id in moment.gates:
        shutil.rmtree(moment.wharf.machine.state / "default" / workspace_id, ignore_errors=True)
    moment.release()
    await moment.noticed()


async def names_are_taken(moment: Moment) -> None:
    """By strangers."""
    for workspace_id in moment.gates:
        await moment.wharf.place_stranger((await moment.wharf.labels(workspace_id)).name)
    moment.release()


async def the_disk_is_full(moment: Moment) -> None:
    """There is room again when that is noticed."""
    ballast = fill(moment.wharf.machine.state)
    moment.release()
    try:
        await moment.noticed()
    finally:
        ballast.unlink()


_BEFORE_THE_CONTAINER = CREATION[:3]
_BEFORE_THE_START = CREATION[3:6]
# At which steps each can do harm.
CREATING: dict[Fault, Sequence[str]] = {
    clients_cancel: CREATION,
    clients_vanish: CREATION,
    the_engine_is_killed: CREATION,
    the_engine_is_paused: CREATION,
    the_service_is_killed: CREATION,
    the_service_is_killed_while_the_engine_hangs: CREATION,
    clients_cancel_while_the_engine_hangs: CREATION,
    starts_are_refused: _BEFORE_THE_START,
    names_are_taken: _BEFORE_THE_CONTAINER,
    the_disk_is_full: CREATION,
}
REMOVING: dict[Fault, Sequence[str]] = dict.fromkeys(
    (
        the_engine_is_killed,
        the_engine_is_paused,
        the_service_is_killed,
        the_service_is_killed_while_the_engine_hangs,
    ),
    REMOVAL,
)
# How creations end; the others are READY, whatever happened on the way.
OUTCOMES: dict[Fault, str] = {
    clients_cancel: DELETED,
    clients_cancel_while_the_engine_hangs: DELETED,
    clients_vanish: DELETED,
    names_are_taken: FAILED,
}


@dataclass(frozen=True, slots=True)
class Round:
    """A fault that meets some workspaces, each at one of the steps."""

    fault: Fault
    steps: Sequence[str]

    def __str__(self) -> str:
        """For who reads what failed."""
        return f"{self.fault.__name__} at {', '.join(self.steps)}"


class Chances:
    """Rounds without end: all faults in turn, and the steps that were met least."""

    def __init__(self, seed: int, faults: Mapping[Fault, Sequence[str]]) -> None:
        self._random = random.Random(seed)
        self._faults = faults
        self._left: list[Fault] = []
        self.met: Counter[str] = Counter()

    def next(self) -> Round:
        """The next one."""
        if not self._left:
            self._left = self._random.sample(list(self._faults), len(self._faults))
        fault = self._left.pop()
        possible = self._faults[fault]
        rarest = sorted(possible, key=lambda step: (self.met[step], self._random.random()))[:_AT_ONCE]
        self.met.update(rarest)
        # Whoever is to be held behind a step must have passed it before anybody is held there.
        return Round(fault, sorted(rarest, key=possible.index, reverse=True))
