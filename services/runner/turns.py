"""A begun turn, to what FinishTurn will say of it: by itself, by a limit, by a Stop, by a failure."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason, RuntimeAfter, StopMethod, TurnState
from moorage.session.v1.journal_pb2 import BeginTurnResponse

from services.runner.acp.errors import AgentError, AgentExited, HandlerFailed
from services.runner.acp.messages import Prompt, PromptResult
from services.runner.acp.records import token_usage
from services.runner.clients.journal import TurnJournal
from services.runner.endings import Ending, TurnFailed, TurnStopped
from services.runner.executions import Execution
from services.runner.failures import agent_failure, process_failure
from services.runner.holds import Hold
from services.runner.interrupts import background, time_limit
from services.runner.limits import LimitWatch
from services.runner.listener import TurnListener
from services.runner.phases import Phases, Workshop
from services.runner.records import RecordBuffer
from services.runner.runtimes import Runtime
from services.runner.texts import storable

# Between the end of an agent's output and the word of its workspace how it ended.
_EXIT_TIMEOUT: Final = 5.0
# For a workspace to say that nothing lives there, where the end of a process was not seen.
_BURY_TIMEOUT: Final = 2.0


class TurnRun:
    """Runs one turn, once."""

    def __init__(
        self,
        workshop: Workshop,
        execution: Execution,
        hold: Hold,
        journal: TurnJournal,
        begun: BeginTurnResponse,
        records: RecordBuffer,
    ) -> None:
        """Nothing has happened but BeginTurn."""
        self._workshop = workshop
        self._execution = execution
        self._hold = hold
        self._limits = LimitWatch(begun.limits, workshop.clock, execution.work.interrupt)
        self._listener = TurnListener(begun.approval_policy, self._limits, records, workshop.clock)
        self._phases = Phases(workshop, execution, hold, journal, begun)

    async def run(self) -> Ending:
        """How it ended, once its agent has; raises TurnAbandoned when nobody may say.

        All that the agent said is in the buffer then.
        """
        async with self._listener.listening(), AsyncExitStack() as runtimes:
            try:
                async with background(self._limits.watch_duration()), self._execution.work:
                    result = await self._phases.run(runtimes, self._listener, self._limits)
                ending = _completed(result)
            except AgentError as error:
                ending = (await self._failure(error)).ending()
            except TurnStopped as stop:
                ending = await self._wind_down(Ending(TurnState.TURN_STATE_STOPPED, stop.reason))
            except TurnFailed as failure:
                ending = await self._wind_down(failure.ending())
            return await self._end_runtime(ending)

    async def _wind_down(self, ending: Ending) -> Ending:
        """Tell the agent that its turn is over, and give it time to say so."""
        runtime, prompt = self._phases.runtime, self._phases.prompt
        if runtime is None or prompt is None:
            return _stopped_by(ending, StopMethod.STOP_METHOD_PROMPT_WITHDRAWN)
        if prompt.is_done:
            return await self._own_end(prompt)
        if result := await self._cancel(runtime, prompt):
            ending = replace(ending, stop_reason=storable(result.stop_reason), usage=token_usage(result))
            return _stopped_by(ending, StopMethod.STOP_METHOD_AGENT_CONFIRMED)
        return ending

    async def _own_end(self, prompt: Prompt) -> Ending:
        """The agent had ended by itself before anybody could tell it to."""
        try:
            return _completed(await prompt.result)
        except AgentError as error:
            return (await self._failure(error)).ending()

    async def _cancel(self, runtime: Runtime, prompt: Prompt) -> PromptResult | None:
        patience = self._workshop.runtimes.patience.cancel
        try:
            async with time_limit(self._workshop.clock, patience, TimeoutError):
                await runtime.connection.cancel(prompt.session_id)
                return await prompt.result
        except (TimeoutError, AgentError):
            return None

    async def _end_runtime(self, ending: Ending) -> Ending:
        if self._phases.runtime is not None:
            ending = _stopped_by(ending, await self._phases.runtime.end())
        if not await self._hold.bury(_BURY_TIMEOUT):
            return ending
        return replace(ending, runtime_after=RuntimeAfter.RUNTIME_AFTER_ENDED)

    async def _failure(self, error: AgentError) -> TurnFailed:
        """Why the agent failed: of its death its workspace knows more than the connection."""
        if isinstance(error, HandlerFailed):
            raise error.__cause__ or error
        if isinstance(error, AgentExited) and (runtime := self._phases.runtime):
            runtime.process.discard()
            try:
                async with time_limit(self._workshop.clock, _EXIT_TIMEOUT, TimeoutError):
                    end = await runtime.process.wait()
            except TimeoutError:
                return self._agent_failure(error)
            return process_failure(end, self._phases.stderr)
        return self._agent_failure(error)

    def _agent_failure(self, error: AgentError) -> TurnFailed:
        return agent_failure(error, self._phases.stderr, self._phases.login)


def _completed(result: PromptResult) -> Ending:
    return Ending(
        TurnState.TURN_STATE_COMPLETED,
        EndReason.END_REASON_AGENT_ENDED,
        stop_reason=storable(result.stop_reason),
        usage=token_usage(result),
    )


def _stopped_by(ending: Ending, method: StopMethod.ValueType) -> Ending:
    """The ending with the method, where there was a Stop and nothing is known of how it worked."""
    unknown = ending.stop_method == StopMethod.STOP_METHOD_UNSPECIFIED
    if ending.state == TurnState.TURN_STATE_STOPPED and unknown:
        return replace(ending, stop_method=method)
    return ending
