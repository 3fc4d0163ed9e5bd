"""Runtimes: an agent's process in a workspace, the connection to it, its native session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.turn_pb2 import StopMethod
from moorage.workspace.v1.workspace_pb2 import ExecStart

from services.common.clock import Clock
from services.common.telemetry import current_traceparent
from services.runner.acp.connection import AgentConnection
from services.runner.acp.messages import AgentHandler
from services.runner.acp.transport import TransportLimits
from services.runner.clients.processes import Process, Processes
from services.runner.holds import Hold
from services.runner.interrupts import time_limit
from services.runner.places import Place
from services.runner.profiles import Profile, resolve_command

# Of a hundred agents that say more than can be stored.
_LIMITS: Final = TransportLimits(queue_bytes=1024 * 1024)
# After a KILL only the workspace itself can be late.
_KILL_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an agent has: to confirm a cancel, to exit without input, to exit after TERM."""

    cancel: float
    close: float
    terminate: float


class Runtime:
    """An agent at work under the lease that it was started under."""

    def __init__(
        self, process: Process, connection: AgentConnection, hold: Hold, patience: Patience, clock: Clock
    ) -> None:
        """See Runtimes.start."""
        self.process: Final = process
        self.connection: Final = connection
        self._hold = hold
        self._patience = patience
        self._clock = clock

    async def end(self) -> StopMethod.ValueType:
        """Close, then TERM, then KILL, then cut the stream; which of them ended it, as far as was seen."""
        await self.connection.close()
        self.process.discard()
        method = await self._ladder()
        self._hold.ended(self.process.end)
        return method

    async def _ladder(self) -> StopMethod.ValueType:
        process, patience = self.process, self._patience
        if process.end is not None and not process.end.confirmed:
            return StopMethod.STOP_METHOD_RUNTIME_DESTROYED
        if await self._dies(process.close_stdin, patience.close):
            return StopMethod.STOP_METHOD_AGENT_EXITED
        if await self._dies(lambda: process.signal("SIGTERM"), patience.terminate):
            return StopMethod.STOP_METHOD_TERMINATED
        if not await self._dies(lambda: process.signal("SIGKILL"), _KILL_TIMEOUT):
            process.cut()
            await process.wait()
        return StopMethod.STOP_METHOD_KILLED

    async def _dies(self, act: Callable[[], Awaitable[None]], seconds: float) -> bool:
        if self.process.end is not None:
            return True
        try:
            async with time_limit(self._clock, seconds, TimeoutError):
                with suppress(ConnectionError):
                    await act()
                await self.process.wait()
        except TimeoutError:
            return False
        return True


class Runtimes:
    """Starts agents."""

    def __init__(self, processes: Processes, clock: Clock, patience: Patience) -> None:
        """One for all turns."""
        self.patience: Final = patience
        self._processes = processes
        self._clock = clock

    @asynccontextmanager
    async def start(
        self,
        hold: Hold,
        place: Place,
        profile: Profile,
        environment: Mapping[str, str],
        handler: AgentHandler,
    ) -> AsyncIterator[Runtime]:
        """A started agent, for as long as the block lasts; renewed grants are shown meanwhile.

        Raises what the workspace says when the command cannot be started.
        """
        start = _exec_start(hold, place, profile, environment)
        async with self._processes.start(place.endpoint, start) as process:
            hold.started(place)
            try:
                with hold.lease.followed_by(process.show):
                    await process.started()
                    async with AgentConnection(process, handler, _LIMITS) as connection:
                        yield Runtime(process, connection, hold, self.patience, self._clock)
            finally:
                hold.ended(process.end)


def _exec_start(hold: Hold, place: Place, profile: Profile, environment: Mapping[str, str]) -> ExecStart:
    variables = {**profile.environment, **environment}
    if traceparent := current_traceparent():
        variables["TRACEPARENT"] = traceparent
    return ExecStart(
        grant=hold.lease.grant,
        project=place.project,
        workspace_id=place.workspace_id,
        command=resolve_command(profile),
        directory=place.root,
        environment=variables,
        inherit_environment=profile.inherit_environment,
    )
