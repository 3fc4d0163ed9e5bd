"""Making sure that an exec is dead whose helper is not heard of any more (F6)."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from functools import partial
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Final

import docker
from docker.errors import APIError, NotFound

from services.common.logs import get_logger
from services.workspace.docker.containers import LEAVING, inspect, stop
from services.workspace.docker.exec.helper import HELPER_PATH
from services.workspace.exec.process import Outcome, PlaceLost, PlaceStopped
from services.workspace.providers.registry import Silent, Unasked

if TYPE_CHECKING:
    from services.workspace.docker.exec.helpers import Engine

_PAUSE: Final = 0.25
# From the first look on whether a helper that ends others has done it.
_LOOK: Final = 0.02
_LONGEST_LOOK: Final = 0.25
_CONFLICT: Final = 409
# How a helper ends that ends others.
_DONE: Final = 0
_LEFT_OVER: Final = 1
# What engines tell of a process that SIGKILL ended.
_KILLED: Final = 128 + SIGKILL
# After the time that a helper was told it kills its command; one that was stopped is killed
# by the container's first process, which looks each second at who is late by one. It is also for
# how long a container that runs may say that something is left.
_GRACE: Final = 3.0
# For how long it may say nothing, on a busy machine.
_LONGEST_SILENCE: Final = 10.0
# How a first process ends that cannot look any more (BLIND_STATUS).
_BLIND: Final = 70
_STOPPED: Final = "its container was stopped: what a command had left there could not be killed"
# How long an engine is waited for when that is over already.
_SHORTEST_ANSWER: Final = 1.0

_log: Final = get_logger(__name__)


async def until_dead(engine: Engine, container_id: str, name: str, told: float) -> Outcome | None:
    """Return when no process of the helper `name` lives: how it ended, if that can be told. PlaceLost.

    It is killed through the engine, and its container with it where that does not help. Only where the
    engine does not answer it counts as dead some time after what it was `told`, in seconds of the boot
    clock.
    """
    ending = _Ending(engine, container_id, name)
    over = told + _GRACE
    while True:
        try:
            if await ending.look(max(over - _now(), _SHORTEST_ANSWER)):
                return ending.outcome
        except PlaceLost:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, the engine has not said that it is dead)
            _log.warning("the end of an exec is not confirmed", container=container_id, error=repr(error))
            if not ending.answers and _now() > over:
                return None
        await asyncio.sleep(_PAUSE)


class _Ending:
    """What is known of the end of a helper."""

    def __init__(self, engine: Engine, container_id: str, name: str) -> None:
        self.outcome: Outcome | None = None
        self.answers = False
        """Whether the engine did when it was asked for the last time."""
        self._engine = engine
        self._container_id = container_id
        self._name = name
        self._started = ""
        self._runs_since = math.inf
        self._is_refused = False
        self._is_stopped = False

    async def look(self, patience: float) -> bool:
        """Try to end it; whether it is dead. PlaceLost, and what comes of an engine or a helper."""
        place = await self._ask(patience)
        if place.outcome is not None:
            self.outcome = place.outcome
            return True
        left = self._runs_since + (_GRACE if self._is_refused else _LONGEST_SILENCE) - _now()
        if left <= 0:
            await self._stop()
            return False
        try:
            async with asyncio.timeout(left):
                is_dead = await end(self._engine, self._container_id, self._name)
        except Silent:
            # Nobody in the container was asked.
            self._runs_since = math.inf
            raise
        self._is_refused = not is_dead
        return is_dead

    async def _ask(self, patience: float) -> _Place:
        self.answers = False
        try:
            async with asyncio.timeout(patience):
                place = await self._engine.call(partial(_place_of, self._container_id))
        except PlaceStopped:
            if self._is_stopped:
                raise PlaceStopped(_STOPPED) from None
            raise
        except Exception:
            # Nothing could be done meanwhile.
            self._runs_since = math.inf
            raise
        self.answers = True
        if self._started not in ("", place.started):
            raise PlaceStopped(_STOPPED if self._is_stopped else "its container was started again")
        self._started = place.started
        # What was paused had no time to die in.
        self._runs_since = _now() if place.was_paused else min(self._runs_since, _now())
        if place.outcome is not None and self._is_stopped:
            raise PlaceStopped(_STOPPED)
        return place

    async def _stop(self) -> None:
        """End what lives in the container, whatever it has done to those who should have killed it."""
        if not self._is_stopped:
            _log.warning(
                "a container is stopped, as what a command has left in it could not be killed",
                container=self._container_id,
                helper=self._name,
            )
        self._is_stopped = True
        async with asyncio.timeout(_GRACE):
            await self._engine.call(partial(_stop, self._container_id, self._started))


@dataclass(frozen=True, slots=True)
class _Place:
    """What an engine says of a container: `outcome` when it ended for want of memory.

    `started` is when, as the engine writes it; `was_paused`: until it was asked, it is not any more.
    """

    started: str
    outcome: Outcome | None
    was_paused: bool = False


def _place_of(container_id: str, client: docker.DockerClient) -> _Place:
    """PlaceLost, PlaceStopped unless it ended for want of memory."""
    api: Any = client.api
    try:
        state = api.inspect_container(container_id)["State"]
    except NotFound:
        raise PlaceLost("its container is gone") from None
    if state["Paused"]:
        # Nothing in it can be killed, or could see that its time is over, and it would go on some day.
        api.unpause(container_id)
    if state["Running"]:
        return _Place(state["StartedAt"], None, was_paused=state["Paused"])
    if state["Status"] in LEAVING:
        raise PlaceLost("its container is being removed")
    # The first of these also stays when it was another process, and the container went on.
    if state["OOMKilled"] and state["ExitCode"] == _KILLED:
        return _Place(state["StartedAt"], Outcome(None, SIGKILL, killed=False, out_of_memory=True))
    if state["ExitCode"] == _BLIND:
        raise PlaceStopped(
            "its container ended: its first process was kept from looking after what commands leave"
        )
    raise PlaceStopped(f"its container stopped: {state['Error'] or state['Status']}")


def _stop(container_id: str, started: str, client: docker.DockerClient) -> None:
    """Unless it was started again."""
    found = inspect(container_id, client)
    if found is not None and found.started == started:
        stop(found, client)


async def clear(engine: Engine, container_id: str, prefix: str) -> None:
    """End what has a name that begins so where nothing else may run: with its container if need be."""
    try:
        if await end(engine, container_id, prefix):
            return
        cause = "something is left"
    except Silent:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, nobody has said that nothing is left)
        cause = str(error)
    found = await engine.call(partial(inspect, container_id))
    if found is not None and found.running:
        _log.warning("a container that was not cleared is stopped", container=container_id, cause=cause)
        await engine.call(partial(stop, found))


async def end(engine: Engine, container_id: str, name: str) -> bool:
    """Kill what has a name that begins so; whether the container says that nothing is left. Unasked.

    What does not run has nothing in it, but that is not for this call to say: False. It lasts for as
    long as the container is paused, say, and holds no thread meanwhile.
    """
    try:
        exec_id = await engine.call(partial(_begin, container_id, name))
    except APIError as error:
        if error.status_code == _CONFLICT:
            return False
        raise
    look = _LOOK
    while (found := await engine.call(partial(_inspect, exec_id)))["Running"]:
        await asyncio.sleep(look)
        look = min(2 * look, _LONGEST_LOOK)
    if found["ExitCode"] not in (_DONE, _LEFT_OVER):
        raise Unasked(f"the helper in the container ended with {found['ExitCode']}")
    return bool(found["ExitCode"] == _DONE)


def _begin(container_id: str, name: str, client: docker.DockerClient) -> str:
    api: Any = client.api
    made = api.exec_create(container_id, [HELPER_PATH, "end", name], stdout=False, stderr=False)
    # The library reads what an exec says for ever, whatever its timeout is.
    api.exec_start(made["Id"], detach=True)
    return str(made["Id"])


def _inspect(exec_id: str, client: docker.DockerClient) -> dict[str, Any]:
    api: Any = client.api
    found: dict[str, Any] = api.exec_inspect(exec_id)
    return found


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
