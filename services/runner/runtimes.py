"""Runtimes: an agent's process in a workspace, the connection to it, its native session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.turn_pb2 import StopMethod
from moorage.session.v1.session_pb2 import AgentSpec
from moorage.workspace.v1.workspace_pb2 import ExecStart

from services.common.clock import Clock
from services.common.telemetry import current_traceparent
from services.fencing.leases import HeldLease
from services.runner.acp.connection import AgentConnection
from services.runner.acp.messages import AgentInfo, NativeSession
from services.runner.acp.transport import TransportLimits
from services.runner.audience import Audience
from services.runner.clients.processes import Process, Processes
from services.runner.interrupts import time_limit
from services.runner.places import Place
from services.runner.profiles import Profile, resolve_command

# Of a hundred agents that say more than can be stored.
_LIMITS: Final = TransportLimits(queue_bytes=1024 * 1024)
# After a KILL only the workspace itself can be late.
_KILL_TIMEOUT: Final = 5.0
# For a workspace to look at processes and kill some, and to take what the agent still says.
_SETTLE_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an agent has: to confirm a cancel, to exit without input, to exit after TERM."""

    cancel: float
    close: float
    terminate: float


class Runtime:
    """An agent at work under the lease that it was launched under, for one turn after the other.

    `place` and `agent` are what it was launched for; `info` and `native` what it told.
    """

    def __init__(
        self,
        process: Process,
        place: Place,
        agent: AgentSpec,
        stack: AsyncExitStack,
        patience: Patience,
        clock: Clock,
    ) -> None:
        """See Runtimes.launch."""
        self.process: Final = process
        self.place: Final = place
        self.agent: Final = agent
        self.audience: Final = Audience()
        self.connection: Final = AgentConnection(process, self.audience, _LIMITS)
        self.exec_id = ""
        self.info: AgentInfo | None = None
        self.native: NativeSession | None = None
        self._stack = stack
        self._patience = patience
        self._clock = clock

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return self.process.end is None and not self.connection.is_closed

    async def open(self) -> None:
        """Return when the process runs and is listened to; raises what the workspace says when it cannot."""
        self.exec_id = (await self.process.started()).exec_id
        await self._stack.enter_async_context(self.connection)

    async def died(self) -> None:
        """Return when it cannot be talked to any more."""
        await self.connection.wait_closed()

    async def mark(self) -> bool:
        """Draw the line between the agent's own processes and a turn's; False when it is dead or mute."""
        try:
            async with time_limit(self._clock, _SETTLE_TIMEOUT, TimeoutError):
                await self.process.mark()
        except (TimeoutError, ConnectionError):
            return False
        return self.is_alive

    async def settle(self) -> bool:
        """Whether it may stay warm: what it started for the turn is dead, all that it said was heard (S8)."""
        try:
            async with time_limit(self._clock, _SETTLE_TIMEOUT, TimeoutError):
                await self.process.reap()
                await self.connection.drained()
        except (TimeoutError, ConnectionError):
            return False
        return self.is_alive

    async def end(self) -> StopMethod.ValueType:
        """Close, then TERM, then KILL, then cut the stream; how it ended, once it has or nobody knows."""
        await self.connection.close()
        self.process.discard()
        method = await self._ladder()
        await self.cut()
        return method

    async def cut(self) -> None:
        """Cut the stream at once: the workspace ends what is left. Nothing is to be had from it any more."""
        await self._stack.aclose()

    async def _ladder(self) -> StopMethod.ValueType:
        process, patience = self.process, self._patience
        if process.end is not None and not process.end.confirmed:
            return StopMethod.STOP_METHOD_RUNTIME_DESTROYED
        if await self._dies(process.close_stdin, patience.close):
            return StopMethod.STOP_METHOD_AGENT_EXITED
        if await self._dies(lambda: process.signal("SIGTERM"), patience.terminate):
            return StopMethod.STOP_METHOD_TERMINATED
        if await self._dies(lambda: process.signal("SIGKILL"), _KILL_TIMEOUT):
            return StopMethod.STOP_METHOD_KILLED
        process.cut()
        await process.wait()
        return StopMethod.STOP_METHOD_RUNTIME_DESTROYED

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
    """Launches agents."""

    def __init__(self, processes: Processes, clock: Clock, patience: Patience) -> None:
        """One for all turns."""
        self.patience: Final = patience
        self._processes = processes
        self._clock = clock

    async def launch(
        self,
        lease: HeldLease,
        place: Place,
        profile: Profile,
        agent: AgentSpec,
        environment: Mapping[str, str],
    ) -> Runtime:
        """Have an agent started, with these variables and its profile's, secret ones too.

        Renewed grants are shown for it from now on. To be opened; to be ended or cut.
        Never suspends, so whoever is interrupted has it, or it does not exist.
        """
        stack = AsyncExitStack()
        start = _exec_start(lease, place, profile, environment)
        process = await stack.enter_async_context(self._processes.start(place.endpoint, start))
        stack.enter_context(lease.followed_by(process.show))
        return Runtime(process, place, agent, stack, self.patience, self._clock)


def _exec_start(
    lease: HeldLease, place: Place, profile: Profile, environment: Mapping[str, str]
) -> ExecStart:
    variables = {**profile.environment, **environment}
    if traceparent := current_traceparent():
        variables["TRACEPARENT"] = traceparent
    return ExecStart(
        grant=lease.grant,
        project=place.project,
        workspace_id=place.workspace_id,
        command=resolve_command(profile, in_container=place.in_container),
        directory=place.root,
        environment=variables,
        inherit_environment=profile.inherit_environment,
    )
