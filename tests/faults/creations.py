"""What can go wrong with workspaces in containers: at which steps, and how."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.common.errors import MoorageError
from tests.faults.preparation import Preparation
from tests.faults.wharf import Wharf, fill

SET_UP = "the set-up command"
# In their order; each is a failpoint, but the last one of making.
CREATION = (
    "workspace.provision.before_make",
    "workspace.docker.before_directory",
    "workspace.docker.before_create",
    "workspace.docker.after_create",
    "workspace.docker.before_start",
    "workspace.docker.after_start",
    "workspace.provision.after_make",
    "workspace.provision.after_fill",
    SET_UP,
)
REMOVAL = (
    "workspace.docker.before_remove",
    "workspace.docker.after_remove",
    "workspace.docker.before_directory_remove",
    "workspace.remove.after_remove",
)
# Where there is something of a directory that Moorage made.
OF_OWN_DIRECTORIES = frozenset({SET_UP, "workspace.docker.before_directory_remove"})

READY, FAILED, DELETED = "READY", "FAILED", "DELETED"


class Hold(Protocol):
    """Holds the work on a workspace at a step."""

    async def reached(self) -> None:
        """Return when it is there."""
        ...

    def release(self) -> None:
        """Let it go on."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """The work on some workspaces, by their ids, is held, each at a step of its own."""

    wharf: Wharf
    gates: Mapping[str, Hold]

    def release(self) -> None:
        """Let it go on."""
        for gate in self.gates.values():
            gate.release()

    async def noticed(self) -> None:
        """What goes wrong is known of each, or it does not matter to it."""
        for workspace_id, gate in self.gates.items():
            if isinstance(gate, Preparation):
                # Nobody can hear of it while the engine hangs.
                await gate.ended()
            else:
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
    """No directory can be labelled; there is room again when that is noticed."""
    ballast = fill(moment.wharf.machine.state)
    moment.release()
    try:
        await moment.noticed()
        for workspace_id in moment.gates:
            assert (await moment.wharf.row(workspace_id))["state"] == "PROVISIONING"
    finally:
        ballast.unlink()


_BEFORE_THE_DIRECTORY = CREATION[:2]
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
    the_disk_is_full: _BEFORE_THE_DIRECTORY,
}
# Those that meet no directory that was supplied.
OWN_DIRECTORIES_ONLY = frozenset({starts_are_refused, the_disk_is_full})
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
