"""Decisions about questions, brought to the turns that ask (T6)."""

from __future__ import annotations

from typing import Final

from services.common.logs import get_logger
from services.runner.executions import Executions
from services.runner.questions import WITHDRAWN, Decision

_log: Final = get_logger(__name__)


class Answers:
    """Finds who asked."""

    def __init__(self, executions: Executions) -> None:
        """What this process executes."""
        self._executions = executions

    def deliver(
        self, project: str, session_id: str, turn_id: str, interaction_id: str, decision: Decision
    ) -> bool:
        """Tell the turn what was decided; False when this process does not have it.

        A turn that is to end takes no answers any more: its questions are withdrawn (S8).
        """
        execution = self._executions.find(project, session_id)
        if execution is None or execution.attempt.turn_id != turn_id or execution.settled:
            return False
        _log.info("answer delivered", turn=turn_id, interaction=interaction_id, stopping=execution.stopping)
        execution.questions.settle(interaction_id, WITHDRAWN if execution.stopping else decision)
        return True
