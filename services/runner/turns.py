"""A begun turn, to what FinishTurn will say of it: by itself, by a limit, by a Stop, by a failure."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason, RuntimeAfter, StopMethod, TurnState
from moorage.session.v1.journal_pb2 import BeginTurnResponse

from services.common.failpoints import failpoint
from services.runner.acp.errors import AgentError, AgentExited, HandlerFailed
from services.runner.acp.messages import Prompt, PromptResult
from services.runner.acp.records import token_usage
from services.runner.asking import Asking
from services.runner.clients.journal import TurnJournal
from services.runner.endings import Ending, TurnAbandoned, TurnFailed, TurnStopped
from services.runner.executions import Execution
from services.runner.failures import agent_failure, process_failure, unexpected
from services.runner.holds import Hold
from services.runner.interrupts import background, time_limit
from services.runner.limits import LimitWatch
from services.runner.listener import TurnListener
from services.runner.phases import Phases, Workshop
from services.runner.records import RecordBuffer
from services.runner.stops import stopping
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
        asking: Asking,
    ) -> None:
        """Nothing has happened but BeginTurn."""
        self._workshop = workshop
        self._execution = execution
        self._hold = hold
        self._limits = LimitWatch(begun.limits, workshop.clock, execution.work.interrupt)
        self._errands = workshop.errands(execution, hold)
        self._listener = TurnListener(
            begun.approval_policy,
            self._limits,
            records,
            workshop.clock,
            turn_id=execution.attempt.turn_id,
            asking=asking,
            errands=self._errands,
        )
        self._phases = Phases(workshop, execution, hold, journal, begun)

    async def run(self) -> Ending:
        """How it ended, once its agent has; raises TurnAbandoned when nobody may say.

        All that the agent said is in the buffer then. A runtime that stays is left to the hold.
        """
        async with self._listener.listening(), self._errands:
            with ExitStack() as spans:
                ending = await self._reach_end(spans)
                await self._errands.close()
                return await self._leave_runtime(ending)

    async def _reach_end(self, spans: ExitStack) -> Ending:
        try:
            async with background(self._limits.watch_duration()), self._execution.work:
                result = await self._phases.run(self._listener, self._limits)
                await failpoint("runner.agent.ended")
                return _completed(result)
        except AgentError as error:
            return (await self._failure(error)).ending()
        except TurnStopped as stop:
            spans.enter_context(stopping(stop))
            return await self._wind_down(Ending(TurnState.TURN_STATE_STOPPED, stop.reason))
        except TurnFailed as failure:
            return await self._wind_down(failure.ending())
        except TurnAbandoned:
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours must not leave the turn without an ending)
            return await self._wind_down(unexpected(error, self._execution.phase).ending())

    async def _wind_down(self, ending: Ending) -> Ending:
        """Tell the agent that its turn is over, and give it time to say so.

        Once it has been told, every end is the given one; what ended by itself before keeps its own.
        """
        prompt = self._phases.prompt
        if prompt is None:
            return _stopped_by(ending, StopMethod.STOP_METHOD_PROMPT_WITHDRAWN)
        await failpoint("runner.stop.before_cancel")
        told = False
        with suppress(TimeoutError, AgentError):
            async with time_limit(
                self._workshop.clock, self._workshop.runtimes.patience.cancel, TimeoutError
            ):
                told = await self._cancel(prompt)
                await failpoint("runner.stop.after_cancel")
                if told:
                    return _confirmed(ending, await prompt.result)
        return await self._own_end(prompt) if prompt.is_done and not told else ending

    async def _cancel(self, prompt: Prompt) -> bool:
        """Whether the agent was told; False when it had ended before."""
        runtime = self._hold.runtime
        return runtime is not None and await runtime.connection.cancel(prompt.session_id)

    async def _own_end(self, prompt: Prompt) -> Ending:
        """The agent had ended by itself before anybody could tell it to."""
        try:
            return _completed(await prompt.result)
        except AgentError as error:
            return (await self._failure(error)).ending()

    async def _leave_runtime(self, ending: Ending) -> Ending:
        """Let the runtime stay where it may, and else end it (S9)."""
        runtime = self._hold.runtime
        may_stay = _leaves_warm(ending) and self._workshop.may_park() and not self._hold.has_strays
        if runtime and may_stay and await runtime.settle():
            runtime.audience.listener = None
            return replace(ending, runtime_after=RuntimeAfter.RUNTIME_AFTER_WARM)
        end = await self._hold.end_runtime()
        return replace(_stopped_by(ending, end.method), runtime_after=end.after)

    async def _failure(self, error: AgentError) -> TurnFailed:
        """Why the agent failed: of its death its workspace knows more than the connection."""
        if isinstance(error, HandlerFailed):
            if isinstance(error.__cause__, TurnAbandoned):
                raise error.__cause__
            return unexpected(error, self._execution.phase)
        if isinstance(error, AgentExited) and (runtime := self._hold.runtime):
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


def _confirmed(ending: Ending, result: PromptResult) -> Ending:
    """The ending, as the agent confirmed it."""
    ending = replace(ending, stop_reason=storable(result.stop_reason), usage=token_usage(result))
    return _stopped_by(ending, StopMethod.STOP_METHOD_AGENT_CONFIRMED)


def _leaves_warm(ending: Ending) -> bool:
    """Whether the agent is as after any turn: it ended this one itself, or on demand as it should."""
    return (
        ending.state == TurnState.TURN_STATE_COMPLETED
        or ending.stop_method == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    )


def _stopped_by(ending: Ending, method: StopMethod.ValueType) -> Ending:
    """The ending with the method, where there was a Stop and nothing is known of how it worked."""
    unknown = ending.stop_method == StopMethod.STOP_METHOD_UNSPECIFIED
    if ending.state == TurnState.TURN_STATE_STOPPED and unknown:
        return replace(ending, stop_method=method)
    return ending
