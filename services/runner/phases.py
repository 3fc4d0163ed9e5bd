"""The phases of a begun turn, from its workspace to the agent's answer, in the order of T4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason, ResumeKind, TurnPhase
from moorage.session.v1.journal_pb2 import BeginTurnResponse, RunObservation
from moorage.session.v1.session_pb2 import McpServer

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.telemetry import current_traceparent
from services.common.together import both
from services.runner.acp.content import acp_blocks
from services.runner.acp.messages import AgentInfo, Prompt, PromptResult
from services.runner.clients.journal import TurnJournal
from services.runner.endings import TurnFailed
from services.runner.errands import Errands
from services.runner.executions import Execution
from services.runner.failures import check_network, start_failure
from services.runner.holds import Hold
from services.runner.interrupts import background, time_limit
from services.runner.limits import LimitWatch
from services.runner.listener import TurnListener
from services.runner.places import Kept, Place, Preparation
from services.runner.profiles import Profile
from services.runner.questions import WAITS_FOR_AGENT
from services.runner.resume import Resumed, Resumption, named, observed, resumed_warm
from services.runner.runtimes import Runtime, Runtimes
from services.runner.secrets import Secrets
from services.runner.setup import Setup, told
from services.runner.texts import storable

_PREFIX: Final = "TURN_PHASE_"
# The phase's own deadline comes first: it tells more.
_LATER: Final = 10.0
_SHORTEST: Final = 0.1
_MOMENT: Final = 0.2


@dataclass(frozen=True, slots=True)
class PhaseTimeouts:
    """How long the phases may last, in seconds."""

    preparing: float
    starting: float
    loading: float


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all turns of a runner share."""

    clock: Clock
    preparation: Preparation
    runtimes: Runtimes
    secrets: Secrets
    profiles: Mapping[str, Profile]
    timeouts: PhaseTimeouts
    # Of what was said before, at most, to an agent that cannot know it.
    history_bytes: int
    # Whether a runtime may stay after its turn.
    may_park: Callable[[], bool]
    errands: Callable[[Execution, Hold], Errands]


class Phases:
    """Carries one turn through its phases; what was reached stays readable when that is cut short."""

    def __init__(
        self,
        workshop: Workshop,
        execution: Execution,
        hold: Hold,
        journal: TurnJournal,
        begun: BeginTurnResponse,
    ) -> None:
        """Nothing has happened but BeginTurn; the hold may have the runtime of the turn before."""
        self.prompt: Prompt | None = None
        self._workshop = workshop
        self._execution = execution
        self._hold = hold
        self._journal = journal
        self._begun = begun
        self._waiting_reason = ""

    @property
    def stderr(self) -> str:
        """The last that the agent said on stderr."""
        return self._hold.runtime.process.stderr if self._hold.runtime else ""

    @property
    def login(self) -> str:
        """How people log in to the agent, in the words of its profile."""
        profile = self._workshop.profiles.get(self._begun.agent.profile)
        return profile.login if profile else ""

    async def run(self, listener: TurnListener, limits: LimitWatch) -> PromptResult:
        """The agent's answer. The runtime is left to the hold."""
        profile = self._profile()
        place, resumed = await self._prepared(listener)
        # The session was refused already where it was known.
        check_network(profile, place)
        listener.serve(place, profile, self._begun.agent)
        if resumed is None:
            servers = await self._start(profile, place, listener)
            resumed = await self._load(servers, listener)
        return await self._converse(resumed, listener, limits)

    def _profile(self) -> Profile:
        name = self._begun.agent.profile
        known = self._workshop.profiles
        if name not in known:
            raise TurnFailed(
                EndReason.END_REASON_AGENT_START_FAILED,
                f"this runner has no agent profile {name!r}",
                code="PROFILE_UNKNOWN",
                profile=name,
                profiles=", ".join(sorted(known)),
            )
        return known[name]

    async def _prepared(self, listener: TurnListener) -> tuple[Place, Resumed | None]:
        """As `_prepare`; how the set-up command ended is told as well when that is why there is no place."""
        try:
            place, resumed = await self._prepare()
        except TurnFailed:
            await self._tell_setup(listener)
            raise
        if place.has_setup:
            await self._tell_setup(listener)
        return place, resumed

    async def _tell_setup(self, listener: TurnListener) -> None:
        if self._begun.setup_untold:
            project, workspace_id = self._execution.attempt.project, self._begun.workspace_id
            body = await self._workshop.preparation.told(project, workspace_id)
            await listener.tell([body] if body else [])

    async def _prepare(self) -> tuple[Place, Resumed | None]:
        """The claimed place, and how the agent that was kept is resumed, if it still answers."""
        phase, timeout = TurnPhase.TURN_PHASE_PREPARING_WORKSPACE, self._workshop.timeouts.preparing
        ends_at = self._workshop.clock.boottime() + timeout

        async def tell(reason: str) -> None:
            self._waiting_reason = storable(reason)
            left = max(ends_at - self._workshop.clock.boottime(), _SHORTEST)
            await self._journal.report(phase, self._waiting_reason, phase_timeout=left)

        await self._keep_if(self._fits)
        kept = self._hold.runtime
        # That it was begun said so already, and with an agent that was kept it is over in a moment.
        async with self._phase(phase, "for the workspace", timeout, is_told=kept is not None):
            await failpoint("runner.workspace.before_claim")
            attempt, lease = self._execution.attempt, self._hold.lease
            preparation = self._workshop.preparation
            place, resumed = await both(
                preparation.run(attempt.project, self._begun, lease, _kept(kept), tell), self._rouse(kept)
            )
            await self._keep_if(lambda runtime: runtime.is_alive and runtime.place == place and bool(resumed))
            return place, resumed if self._hold.runtime else None

    def _fits(self, runtime: Runtime) -> bool:
        """Whether this turn's agent is the one that was kept."""
        return runtime.is_alive and runtime.agent == self._begun.agent

    async def _keep_if(self, fits: Callable[[Runtime], bool]) -> None:
        if self._hold.runtime is not None and not fits(self._hold.runtime):
            await self._hold.end_runtime()

    async def _rouse(self, runtime: Runtime | None) -> Resumed | None:
        """How the kept agent is resumed, as BeginTurn has told; None without one that answers."""
        resumed = resumed_warm(runtime)
        return resumed if resumed and runtime and await runtime.mark() else None

    async def _start(self, profile: Profile, place: Place, listener: TurnListener) -> Sequence[McpServer]:
        """The servers that the agent is to be told of, with their secrets."""
        observation = RunObservation(workspace_provider=place.provider)
        phase, timeout = TurnPhase.TURN_PHASE_STARTING_AGENT, self._workshop.timeouts.starting
        async with self._phase(phase, f"for the agent {profile.name} to start", timeout, observation):
            reveal = self._workshop.secrets.reveal
            revealed = await asyncio.to_thread(reveal, self._execution.attempt.project, self._begun.agent)
            runtime = await self._hold.launch(
                self._workshop.runtimes, place, profile, self._begun.agent, revealed.environment
            )
            runtime.audience.listener = listener
            await failpoint("runner.agent.before_open")
            try:
                await runtime.open()
            except MoorageError as error:
                raise start_failure(error, profile.install) from error
            runtime.info = await runtime.connection.initialize(timeout=timeout + _LATER)
        return revealed.mcp_servers

    async def _load(self, servers: Sequence[McpServer], listener: TurnListener) -> Resumed:
        runtime, info = self._agent
        phase, timeout = TurnPhase.TURN_PHASE_LOADING_SESSION, self._workshop.timeouts.loading
        waiting_reason = "for the agent to open its session"
        async with self._phase(phase, waiting_reason, timeout, RunObservation(agent=named(info))):
            resumption = Resumption(self._begun, servers, self._journal, self._workshop.history_bytes)
            await failpoint("runner.session.before_load")
            resumed = await resumption.run(runtime, info, timeout + _LATER)
            setup = Setup(runtime.connection, resumed.native, timeout + _LATER)
            resumed = replace(resumed, native=await setup.run(self._begun.agent))
        runtime.native = resumed.native
        await listener.tell(told(resumed.native.offers))
        await runtime.mark()
        return resumed

    async def _converse(self, resumed: Resumed, listener: TurnListener, limits: LimitWatch) -> PromptResult:
        runtime, info = self._agent
        blocks = [*resumed.context, *acp_blocks(self._begun.prompt, info.capabilities)]
        is_warm = resumed.observation.resume_kind == ResumeKind.RESUME_KIND_WARM
        if not is_warm:
            await self._report_prompt(runtime, info, resumed)
        await failpoint("runner.prompt.before_send")
        traceparent = current_traceparent()
        meta = {"traceparent": traceparent} if traceparent else None
        runtime.audience.listener = listener
        self.prompt = runtime.connection.prompt(resumed.native.id, blocks, meta=meta)
        self._execution.phase = TurnPhase.TURN_PHASE_PROMPTED
        telling = [self._tell_prompted()] if is_warm else []
        async with background(limits.watch_silence(runtime.process, self._execution.questions), *telling):
            if resumed.is_told:
                await self._report_told(self.prompt)
            return await self.prompt.result

    async def _report_prompt(self, runtime: Runtime, info: AgentInfo, resumed: Resumed) -> None:
        phase, observation = TurnPhase.TURN_PHASE_PROMPTED, observed(runtime, info, resumed)
        await self._journal.report(phase, WAITS_FOR_AGENT, prompt_sent=True, observation=observation)
        self._execution.phase = phase

    async def _tell_prompted(self) -> None:
        """Nobody is told that a warm agent has its prompt before its first words are."""
        await self._workshop.clock.sleep(_MOMENT)
        self._execution.is_untold = True
        self._execution.questions.changed.set()

    async def _report_told(self, prompt: Prompt) -> None:
        """From now on there is a native session that knows what was said, for later turns to load."""
        await prompt.flushed
        native_session_id = storable(prompt.session_id)
        await self._journal.report(observation=RunObservation(native_session_id=native_session_id))

    @property
    def _agent(self) -> tuple[Runtime, AgentInfo]:
        runtime = self._hold.runtime
        if runtime is None or runtime.info is None:
            raise RuntimeError("no agent was started")
        return runtime, runtime.info

    @asynccontextmanager
    async def _phase(
        self,
        phase: TurnPhase.ValueType,
        waiting_reason: str,
        timeout: float,
        observation: RunObservation | None = None,
        *,
        is_told: bool = False,
    ) -> AsyncIterator[None]:
        self._waiting_reason = waiting_reason
        if not is_told:
            await self._journal.report(phase, waiting_reason, phase_timeout=timeout, observation=observation)
        self._execution.phase = phase
        async with time_limit(self._workshop.clock, timeout, lambda: self._overdue(phase, timeout)):
            yield

    def _overdue(self, phase: TurnPhase.ValueType, timeout: float) -> TurnFailed:
        name = TurnPhase.Name(phase).removeprefix(_PREFIX)
        return TurnFailed(
            EndReason.END_REASON_PHASE_DEADLINE,
            f"{name} took longer than {timeout:g} s, waiting {self._waiting_reason}",
            phase=name,
            timeout=f"{timeout:g}",
            waiting_reason=self._waiting_reason,
            stderr=self.stderr,
        )


def _kept(runtime: Runtime | None) -> Kept | None:
    return Kept(runtime.exec_id, runtime.place.endpoint) if runtime else None
