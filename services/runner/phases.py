"""The phases of a begun turn, from its workspace to the agent's answer, in the order of T4."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason, ResumeKind, TurnPhase
from moorage.session.v1.journal_pb2 import BeginTurnResponse, RunObservation

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.failpoints import failpoint
from services.common.telemetry import current_traceparent
from services.runner.acp.content import acp_blocks
from services.runner.acp.messages import AgentInfo, NativeSession, Prompt, PromptResult
from services.runner.clients.journal import TurnJournal
from services.runner.endings import TurnFailed
from services.runner.executions import Execution
from services.runner.failures import start_failure
from services.runner.holds import Hold
from services.runner.interrupts import background, time_limit
from services.runner.limits import LimitWatch
from services.runner.listener import TurnListener
from services.runner.places import Place, Preparation
from services.runner.profiles import Profile
from services.runner.runtimes import Runtime, Runtimes
from services.runner.texts import storable

_PREFIX: Final = "TURN_PHASE_"
# The phase's own deadline comes first: it tells more.
_LATER: Final = 10.0
_SHORTEST: Final = 0.1


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
    profiles: Mapping[str, Profile]
    timeouts: PhaseTimeouts


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
        """Nothing has happened but BeginTurn."""
        self.runtime: Runtime | None = None
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
        return self.runtime.process.stderr if self.runtime else ""

    @property
    def login(self) -> str:
        """How people log in to the agent, in the words of its profile."""
        profile = self._workshop.profiles.get(self._begun.agent.profile)
        return profile.login if profile else ""

    async def run(self, runtimes: AsyncExitStack, listener: TurnListener, limits: LimitWatch) -> PromptResult:
        """The agent's answer. The runtime lives until the stack is left."""
        profile = self._profile()
        place = await self._prepare()
        info = await self._start(runtimes, profile, place, listener)
        native = await self._load(info, place)
        return await self._converse(info, native, limits)

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

    async def _prepare(self) -> Place:
        phase, timeout = TurnPhase.TURN_PHASE_PREPARING_WORKSPACE, self._workshop.timeouts.preparing
        ends_at = self._workshop.clock.boottime() + timeout

        async def tell(reason: str) -> None:
            self._waiting_reason = storable(reason)
            left = max(ends_at - self._workshop.clock.boottime(), _SHORTEST)
            await self._journal.report(phase, self._waiting_reason, phase_timeout=left)

        async with self._phase(phase, "for the workspace", timeout):
            return await self._workshop.preparation.run(
                self._execution.attempt.project, self._begun, self._hold.lease, tell
            )

    async def _start(
        self, runtimes: AsyncExitStack, profile: Profile, place: Place, listener: TurnListener
    ) -> AgentInfo:
        observation = RunObservation(workspace_provider=place.provider)
        phase, timeout = TurnPhase.TURN_PHASE_STARTING_AGENT, self._workshop.timeouts.starting
        async with self._phase(phase, f"for the agent {profile.name} to start", timeout, observation):
            environment = self._begun.agent.environment
            starting = self._workshop.runtimes.start(self._hold, place, profile, environment, listener)
            try:
                self.runtime = await runtimes.enter_async_context(starting)
            except MoorageError as error:
                raise start_failure(error, profile.install) from error
            return await self.runtime.connection.initialize(timeout=timeout + _LATER)

    async def _load(self, info: AgentInfo, place: Place) -> NativeSession:
        observation = RunObservation(agent=storable(f"{info.name} {info.version}".strip()))
        phase, timeout = TurnPhase.TURN_PHASE_LOADING_SESSION, self._workshop.timeouts.loading
        async with self._phase(phase, "for the agent to open its session", timeout, observation):
            return await self._agent.connection.new_session(place.root, timeout=timeout + _LATER)

    async def _converse(self, info: AgentInfo, native: NativeSession, limits: LimitWatch) -> PromptResult:
        blocks = acp_blocks(self._begun.prompt, info.capabilities)
        phase = TurnPhase.TURN_PHASE_PROMPTED
        await self._journal.report(
            phase, "for the agent", prompt_sent=True, observation=self._observation(native)
        )
        self._execution.phase = phase
        await failpoint("runner.prompt.before_send")
        traceparent = current_traceparent()
        meta = {"traceparent": traceparent} if traceparent else None
        self.prompt = self._agent.connection.prompt(native.id, blocks, meta=meta)
        async with background(limits.watch_silence(self._agent.process)):
            return await self.prompt.result

    @property
    def _agent(self) -> Runtime:
        if self.runtime is None:
            raise RuntimeError("no agent was started")
        return self.runtime

    def _observation(self, native: NativeSession) -> RunObservation:
        again = bool(self._begun.previous_turn_id)
        return RunObservation(
            resume_kind=ResumeKind.RESUME_KIND_FRESH,
            resume_reason="the agent of the turn before was ended" if again else "first turn",
            native_session_id=storable(native.id),
            model=_model(native),
        )

    @asynccontextmanager
    async def _phase(
        self,
        phase: TurnPhase.ValueType,
        waiting_reason: str,
        timeout: float,
        observation: RunObservation | None = None,
    ) -> AsyncIterator[None]:
        self._waiting_reason = waiting_reason
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


def _model(native: NativeSession) -> str:
    models = native.raw.get("models")
    current = models.get("currentModelId") if isinstance(models, dict) else None
    return storable(current) if isinstance(current, str) else ""
