"""Drives a leased turn from BeginTurn to the acknowledged FinishTurn."""

from __future__ import annotations

from typing import Final

from opentelemetry import trace

from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import tracer
from services.runner.clients.appends import Appender
from services.runner.clients.journal import JournalClient
from services.runner.executions import Execution
from services.runner.holds import Hold
from services.runner.phases import Workshop
from services.runner.turns import TurnRun

_log: Final = get_logger(__name__)


class Driver:
    """One for all turns of a runner."""

    def __init__(self, workshop: Workshop, journal: JournalClient, appender: Appender) -> None:
        """The appender must run meanwhile."""
        self._workshop = workshop
        self._journal = journal
        self._appender = appender

    async def drive(self, execution: Execution, hold: Hold) -> None:
        """Run the turn to its end and have that stored; raises TurnAbandoned when it may not go on."""
        with tracer().start_as_current_span("turn", attributes=_attributes(execution)) as span:
            await self._drive(execution, hold, span)

    async def _drive(self, execution: Execution, hold: Hold, span: trace.Span) -> None:
        attempt, lease = execution.attempt, hold.lease
        journal = self._journal.of(attempt, lease)
        begun = await journal.begin()
        await failpoint("runner.begin_turn.after")
        async with self._appender.records(attempt, lease, execution.hold.interrupt) as records:
            turn = TurnRun(self._workshop, execution, hold, journal, begun, records)
            ending = await turn.run()
            await records.flush()
            execution.finishing = True
            await failpoint("runner.finish_turn.before")
            await journal.finish(ending, records.last_turn_seq)
        execution.settled = True
        await failpoint("runner.finish_turn.after")
        _log.info("turn ended", end_reason=ending.reason_name, records=records.last_turn_seq)
        span.set_attribute("moorage.end_reason", ending.reason_name)


def _attributes(execution: Execution) -> dict[str, str]:
    return {
        "moorage.project": execution.attempt.project,
        "moorage.session": execution.attempt.session_id,
        "moorage.turn": execution.attempt.turn_id,
    }
