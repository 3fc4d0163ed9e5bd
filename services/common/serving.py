"""The server of a service: one visible place where everything that every service has is put together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from services.common.addresses import Address
from services.common.health import Health
from services.common.interceptors import CallInterceptor
from services.common.listeners import Listener, Register
from services.common.logs import get_logger
from services.common.readiness import Probe, Readiness
from services.common.settings import ServiceSettings

Loop = Callable[[], Awaitable[None]]

_log: Final = get_logger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ServiceServer:
    """Serves on `listen` and on further listeners, follows readiness, stops in order.

    Calls are refused UNAVAILABLE until every probe succeeded once. A client's half-close cannot be
    told from its death (grpc.aio ends the request iterator alike): where it matters, a contract has
    a message for the end.
    """

    def __init__(self, settings: ServiceSettings, *, name: str) -> None:
        """`name` is the service's: owner, session, …"""
        self.name = name
        self.stopping = asyncio.Event()
        self._settings = settings
        self._health = Health()
        self._readiness = Readiness(self._health, settings.readiness_interval)
        self._interceptor = CallInterceptor(self._readiness.admit, self.stopping.is_set)
        self._main = self._listener(*settings.listeners()["listen"])
        self._listeners = [self._main]
        self._watching: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """HOST:PORT at which others reach the main listener; complete once started."""
        return self._main.endpoint

    def add(self, register: Register, *service_full_names: str) -> None:
        """Serve a servicer on the main listener."""
        self._main.add(register, *service_full_names)

    def add_listener(self, address: str, advertise: str | None = None) -> Listener:
        """One more address; `add` to what is returned what only this address serves."""
        advertised = Address.parse(advertise, default_port=0) if advertise else None
        listener = self._listener(Address.parse(address), advertised)
        self._listeners.append(listener)
        return listener

    def readiness(self, name: str, probe: Probe) -> None:
        """Be ready only while `probe` does not raise; its error is the reason that is logged.

        StartupRefused ends the process, if it comes before the service was ready once.
        """
        self._readiness.add(name, probe)

    async def look(self) -> None:
        """Look at the dependencies now: one of them is known to be there."""
        await self._readiness.check()

    def withdraw(self) -> None:
        """Never ready again; calls are answered as before."""
        self._readiness.stop()

    async def until_ready(self) -> None:
        """Return when the service is ready."""
        await self._readiness.ready.wait()

    async def start(self) -> None:
        """Serve, look at the dependencies once, and go on looking until `stop`."""
        for listener in self._listeners:
            await listener.start()
            _log.info("serving", endpoint=listener.endpoint)
        await self._readiness.check()
        self._watching = asyncio.create_task(self._readiness.run())

    async def stop(self) -> None:
        """Not ready, watches of health ended, calls given their grace. Twice is fine."""
        self._readiness.stop()
        self.stopping.set()
        self._health.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await asyncio.gather(*(listener.stop(self._settings.shutdown_grace) for listener in self._listeners))

    async def serve(self, *loops: Loop, drain: Loop | None = None) -> None:
        """Run until SIGTERM or SIGINT, with these loops beside; a second signal cuts the drain short.

        Order at the end: not ready, `drain_delay`, `drain`, `stopping` set, loops cancelled, calls
        stopped with their grace. The first error of a loop ends everything and is raised.
        """
        with self._signals():
            try:
                await self.start()
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(_awaited(loop)) for loop in (self._watched, *loops)]
                    await self._asked.wait()
                    _log.info("stopping")
                    self._readiness.stop()
                    await self._unless_hurried(self._wind_down(drain))
                    self.stopping.set()
                    for task in tasks:
                        task.cancel()
            finally:
                await self.stop()
        _log.info("stopped")

    async def _watched(self) -> None:
        if self._watching is not None:
            await self._watching

    async def _wind_down(self, drain: Loop | None) -> None:
        await asyncio.sleep(self._settings.drain_delay)
        if drain is not None:
            try:
                await drain()
            except Exception as error:  # noqa: BLE001 (the process ends in any case)
                _log.error("drain failed", exc_info=error)

    async def _unless_hurried(self, work: Awaitable[None]) -> None:
        tasks = {asyncio.ensure_future(work), asyncio.create_task(_awaited(self._hurried.wait))}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _ask_to_stop(self) -> None:
        if self._asked.is_set():
            self._hurried.set()
        self._asked.set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        running = asyncio.get_running_loop()
        for number in _SIGNALS:
            running.add_signal_handler(number, self._ask_to_stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                running.remove_signal_handler(number)

    def _listener(self, address: Address, advertise: Address | None) -> Listener:
        return Listener(
            address,
            advertise,
            settings=self._settings,
            health=self._health,
            interceptor=self._interceptor,
        )


async def _awaited(loop: Callable[[], Awaitable[object]]) -> None:
    await loop()
