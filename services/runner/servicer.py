"""RunnerService: unpack, call, pack."""

from __future__ import annotations

from typing import Any, Final

import grpc
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceServicer

from services.common.validation import check_id, check_project
from services.runner.dispatching import Answer, Dispatching
from services.runner.executions import Execution, Executions

Context = grpc.aio.ServicerContext[Any, Any]

_RESULTS: Final = {
    Answer.ACCEPTED: runner_pb2.DISPATCH_RESULT_ACCEPTED,
    Answer.DRAINING: runner_pb2.DISPATCH_RESULT_DRAINING,
    Answer.FULL: runner_pb2.DISPATCH_RESULT_FULL,
    Answer.LEASE_HELD_ELSEWHERE: runner_pb2.DISPATCH_RESULT_LEASE_HELD_ELSEWHERE,
}


class RunnerServicer(RunnerServiceServicer):
    """The contract's side of a runner."""

    def __init__(self, holder: str, dispatching: Dispatching, executions: Executions) -> None:
        """`holder` names this process start."""
        self._holder = holder
        self._dispatching = dispatching
        self._executions = executions

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
