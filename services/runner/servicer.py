"""RunnerService: unpack, call, pack."""

from __future__ import annotations

from typing import Any, Final

import grpc
from moorage.common.v1.record_pb2 import InteractionOutcome
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceServicer

from services.common.errors import InvalidArgument
from services.common.failpoints import failpoint
from services.common.validation import check_id, check_present, check_project
from services.runner.answers import Answers
from services.runner.dispatching import Answer, Dispatching
from services.runner.draining import Drain
from services.runner.executions import Execution, Executions
from services.runner.orders import Orders
from services.runner.questions import Decision

Context = grpc.aio.ServicerContext[Any, Any]

_RESULTS: Final = {
    Answer.ACCEPTED: runner_pb2.DISPATCH_RESULT_ACCEPTED,
    Answer.DRAINING: runner_pb2.DISPATCH_RESULT_DRAINING,
    Answer.FULL: runner_pb2.DISPATCH_RESULT_FULL,
    Answer.LEASE_HELD_ELSEWHERE: runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE,
}
_OUTCOMES: Final = frozenset(
    (
        InteractionOutcome.INTERACTION_OUTCOME_ANSWERED,
        InteractionOutcome.INTERACTION_OUTCOME_CANCELLED,
        InteractionOutcome.INTERACTION_OUTCOME_EXPIRED,
    )
)


class RunnerServicer(RunnerServiceServicer):
    """The contract's side of a runner."""

    def __init__(
        self,
        holder: str,
        dispatching: Dispatching,
        executions: Executions,
        orders: Orders,
        answers: Answers,
        drain: Drain,
    ) -> None:
        """`holder` names this process start."""
        self._holder = holder
        self._dispatching = dispatching
        self._executions = executions
        self._orders = orders
        self._answers = answers
        self._drain = drain

    async def DispatchTurn(
        self, request: runner_pb2.DispatchTurnRequest, context: Context
    ) -> runner_pb2.DispatchTurnResponse:
        """See the contract."""
        dispatched = await self._dispatching.dispatch(
            check_project(request.project),
            check_id("session_id", request.session_id),
            check_id("turn_id", request.turn_id),
            request.traceparent,
        )
        return runner_pb2.DispatchTurnResponse(
            result=_RESULTS[dispatched.answer], holder=self._holder, lease_holder=dispatched.lease_holder
        )

    async def DeliverStop(
        self, request: runner_pb2.DeliverStopRequest, context: Context
    ) -> runner_pb2.DeliverStopResponse:
        """See the contract."""
        await failpoint("runner.stop.received", request.turn_id)
        has = self._orders.stop(
            check_project(request.project),
            check_id("session_id", request.session_id),
            check_id("turn_id", request.turn_id),
            command_id=check_id("command_id", request.command_id),
            traceparent=request.traceparent,
        )
        return runner_pb2.DeliverStopResponse(result=_delivery(has), holder=self._holder)

    async def DeliverAnswer(
        self, request: runner_pb2.DeliverAnswerRequest, context: Context
    ) -> runner_pb2.DeliverAnswerResponse:
        """See the contract."""
        await failpoint("runner.answer.received", request.turn_id)
        has = self._answers.deliver(
            check_project(request.project),
            check_id("session_id", request.session_id),
            check_id("turn_id", request.turn_id),
            check_id("interaction_id", request.interaction_id),
            _decision(request),
        )
        return runner_pb2.DeliverAnswerResponse(result=_delivery(has), holder=self._holder)

    async def SettleTurn(
        self, request: runner_pb2.SettleTurnRequest, context: Context
    ) -> runner_pb2.SettleTurnResponse:
        """See the contract."""
        has = await self._dispatching.settle(
            check_project(request.project),
            check_id("session_id", request.session_id),
            check_id("turn_id", request.turn_id),
            check_id("attempt_id", request.attempt_id),
        )
        return runner_pb2.SettleTurnResponse(result=_delivery(has), holder=self._holder)

    async def EndRuntime(
        self, request: runner_pb2.EndRuntimeRequest, context: Context
    ) -> runner_pb2.EndRuntimeResponse:
        """See the contract."""
        ended = await self._orders.end_runtime(
            check_project(request.project), check_id("session_id", request.session_id)
        )
        return runner_pb2.EndRuntimeResponse(ended=ended)

    async def Drain(self, request: runner_pb2.DrainRequest, context: Context) -> runner_pb2.DrainResponse:
        """See the contract."""
        self._drain.begin(_grace(request))
        if request.wait:
            await self._drain.over.wait()
        return runner_pb2.DrainResponse(
            holder=self._holder, executions=self._drain.executions, runtimes=self._drain.runtimes
        )

    async def ListExecutions(
        self, request: runner_pb2.ListExecutionsRequest, context: Context
    ) -> runner_pb2.ListExecutionsResponse:
        """See the contract."""
        project = check_project(request.project) if request.project else ""
        return runner_pb2.ListExecutionsResponse(
            holder=self._holder,
            executions=[
                _execution(each)
                for each in self._executions
                if not each.settled and project in ("", each.attempt.project)
            ],
        )


def _decision(request: runner_pb2.DeliverAnswerRequest) -> Decision:
    if request.outcome not in _OUTCOMES:
        raise InvalidArgument.of("outcome", "must be ANSWERED, CANCELLED or EXPIRED")
    if request.outcome == InteractionOutcome.INTERACTION_OUTCOME_ANSWERED:
        check_present("option_id", request.option_id)
    return Decision(request.outcome, request.option_id, request.values)


def _grace(request: runner_pb2.DrainRequest) -> float | None:
    if not request.HasField("grace"):
        return None
    seconds = request.grace.ToNanoseconds() / 1e9
    if seconds < 0:
        raise InvalidArgument.of("grace", "must not be negative")
    return seconds


def _delivery(has: bool) -> runner_pb2.DeliveryResult.ValueType:
    return runner_pb2.DELIVERY_RESULT_ACCEPTED if has else runner_pb2.DELIVERY_RESULT_NOT_HELD


def _execution(execution: Execution) -> runner_pb2.Execution:
    message = runner_pb2.Execution(
        project=execution.attempt.project,
        session_id=execution.attempt.session_id,
        turn_id=execution.attempt.turn_id,
        attempt_id=execution.attempt.attempt_id,
        token=execution.token,
        phase=execution.phase,
    )
    message.accept_time.FromDatetime(execution.accept_time)
    return message
