"""What is ordered about turns and runtimes of this process, besides new turns."""

from __future__ import annotations

from typing import Final

from moorage.common.v1.turn_pb2 import EndReason

from services.common.logs import get_logger
from services.runner.endings import TurnStopped
from services.runner.executions import Executions, TurnInProgress, resource_of
from services.runner.holds import Hold
from services.runner.park import Park

_log: Final = get_logger(__name__)


class Orders:
    """Finds whom an order is for. None of them waits for the end of a turn."""

    def __init__(self, executions: Executions, park: Park[Hold]) -> None:
        """What this process executes, and what it has parked."""
        self._executions = executions
        self._park = park

    def stop(self, project: str, session_id: str, turn_id: str, *, command_id: str, traceparent: str) -> bool:
        """Have the turn end; False when it is not executed here. Repeated it does nothing more (S7)."""
        execution = self._executions.find(project, session_id)
        if execution is None or execution.attempt.turn_id != turn_id or execution.settled:
            return False
        _log.info("stop delivered", turn=turn_id, command=command_id)
        reason = EndReason.END_REASON_USER_STOP
        execution.work.interrupt(TurnStopped(reason, command_id=command_id, traceparent=traceparent))
        return True

    async def end_runtime(self, project: str, session_id: str) -> bool:
        """End the session's parked runtime and give its lease back; whether there was one.

        Returns when that is done. TurnInProgress while a turn runs.
        """
        await self._executions.until_over(project, session_id)
        if execution := self._executions.find(project, session_id):
            raise TurnInProgress(session_id=session_id, turn_id=execution.attempt.turn_id)
        resource = resource_of(project, session_id)
        self._park.dismiss(resource, "it was ordered")
        there = self._park.is_leaving(resource)
        await self._park.until_left(resource)
        return there
