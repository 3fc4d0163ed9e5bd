"""Drives a leased turn from BeginTurn to the acknowledged FinishTurn."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moorage.common.v1.turn_pb2 import RuntimeAfter
from moorage.session.v1.journal_pb2 import BeginTurnResponse

from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.telemetry import tracer
from services.runner.asking import Asking
from services.runner.clients.appends import Appender
from services.runner.clients.journal import JournalClient, TurnJournal
from services.runner.endings import Ending, TurnAbandoned, TurnRefused, missing
from services.runner.executions import Execution
from services.runner.failures import unexpected
from services.runner.holds import Hold
from services.runner.interrupts import background
from services.runner.phases import Workshop
from services.runner.records import RecordBuffer
from services.runner.resume import observed_warm
from services.runner.turns import TurnRun

_log: Final = get_logger(__name__)


class Driver:
    """One for all turns of a runner."""

    def __init__(self, workshop: Workshop, journal: JournalClient, appender: Appender) -> None:
        """The appender must run meanwhile."""
        self._workshop = workshop
        self._journal = journal
        self._appender = appender

    async def drive(self, execution: Execution, hold: Hold) -> bool:
        """Run the turn to its end and have that stored; whether the hold's runtime may stay.

        Raises TurnRefused when it cannot be begun, TurnAbandoned when it may not go on.
        """
        with tracer().start_as_current_span("turn", attributes=_attributes(execution)) as span:
            ending = await self._drive(execution, hold)
            span.set_attribute("moorage.end_reason", ending.reason_name)
        return ending.runtime_after == RuntimeAfter.RUNTIME_AFTER_WARM

    async def _drive(self, execution: Execution, hold: Hold) -> Ending:
        attempt, lease = execution.attempt, hold.lease
        journal = self._journal.of(attempt, lease)
        await failpoint("runner.begin_turn.before")
        if execution.stopping:
            # Another runner may begin it instead, or it has ended already.
            raise TurnRefused("it is to end before it was begun")
        begun = await journal.begin(observed_warm(hold.runtime))
        async with self._appender.records(attempt, lease, execution.hold.interrupt) as records:
            asking = Asking(journal, records, execution)
            async with background(asking.store(), asking.tell()):
                ending = await self._run(execution, hold, journal, begun, records, asking)
                await records.flush()
            await self._finish(execution, hold, ending, records.last_turn_seq)
        _log.info("turn ended", end_reason=ending.reason_name, records=records.last_turn_seq)
        return ending

    async def _run(
        self,
        execution: Execution,
        hold: Hold,
        journal: TurnJournal,
        begun: BeginTurnResponse,
        records: RecordBuffer,
        asking: Asking,
    ) -> Ending:
        try:
            await failpoint("runner.begin_turn.after")
            return await TurnRun(self._workshop, execution, hold, journal, begun, records, asking).run()
        except TurnAbandoned:
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours must not leave the turn without an ending)
            ending = unexpected(error, execution.phase).ending()
        await hold.cut()
        return replace(ending, runtime_after=(await hold.end_runtime()).after)

    async def settle(self, execution: Execution, hold: Hold) -> bool:
        """End a turn that was begun under this lease and is not run; nothing of it may live on (F9)."""
        await hold.end_runtime()
        await self._finish(execution, hold, missing(), 0)
        _log.warning("a turn was ended that was begun here and not run")
        return False

    async def _finish(self, execution: Execution, hold: Hold, ending: Ending, last_turn_seq: int) -> None:
        execution.finishing = True
        await failpoint("runner.finish_turn.before")
        await self._journal.of(execution.attempt, hold.lease).finish(ending, last_turn_seq)
        execution.settled = True
        hold.used_at = self._workshop.clock.boottime()
        await failpoint("runner.finish_turn.after")


def _attributes(execution: Execution) -> dict[str, str]:
    return {
        "moorage.project": execution.attempt.project,
        "moorage.session": execution.attempt.session_id,
        "moorage.turn": execution.attempt.turn_id,
    }
