"""Puts the questions of a turn's agent to users, through the journal (T6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from moorage.common.v1.record_pb2 import InteractionOpened, InteractionOutcome, RecordBody
from moorage.common.v1.turn_pb2 import TurnPhase
from moorage.session.v1.session_pb2 import InteractionState

from services.common.errors import InvalidArgument
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.runner.clients.journal import TurnJournal
from services.runner.endings import TurnAbandoned
from services.runner.executions import Execution
from services.runner.failures import unexpected
from services.runner.questions import WAITS_FOR_AGENT, WITHDRAWN, Decision, Question
from services.runner.records import RecordBuffer, Slot, error_body
from services.runner.texts import storable

_log: Final = get_logger(__name__)
_OUTCOMES: Final = {
    InteractionState.INTERACTION_STATE_ANSWERED: InteractionOutcome.INTERACTION_OUTCOME_ANSWERED,
    InteractionState.INTERACTION_STATE_CANCELLED: InteractionOutcome.INTERACTION_OUTCOME_CANCELLED,
    InteractionState.INTERACTION_STATE_EXPIRED: InteractionOutcome.INTERACTION_OUTCOME_EXPIRED,
}


class Asking:
    """One for a turn. Each question is stored in its place among the turn's records.

    The agent is not held up while a question is stored: what it says meanwhile stands behind
    the question and is sent after it. Whether a question was stored has to be known before
    the turn can end, because the numbers of the records behind it depend on that.
    """

    def __init__(self, journal: TurnJournal, records: RecordBuffer, execution: Execution) -> None:
        """`run` must run meanwhile."""
        self._journal = journal
        self._records = records
        self._execution = execution
        self._unstored: asyncio.Queue[tuple[Question, Slot]] = asyncio.Queue()

    async def ask(self, opened: InteractionOpened) -> Question:
        """Give a question its place among the records; its answer follows. Withdrawn in a turn that is to end."""
        question = Question(opened)
        if self._execution.stopping:
            question.settle(WITHDRAWN)
            return question
        slot = await self._records.reserve(RecordBody(interaction_opened=opened))
        self._execution.questions.add(question)
        self._unstored.put_nowait((question, slot))
        return question

    async def store(self) -> None:
        """Store questions, one after the other, until cancelled; ends the turn's hold when it may not."""
        try:
            while True:
                await self._try_to_store(*await self._unstored.get())
        except TurnAbandoned as error:
            self._give_up(error)

    async def tell(self) -> None:
        """Tell what the turn waits for, whenever that changes, until cancelled."""
        told = WAITS_FOR_AGENT
        questions = self._execution.questions
        try:
            while True:
                await questions.changed.wait()
                questions.changed.clear()
                reason = storable(questions.waiting_reason)
                if reason != told or self._execution.is_untold:
                    self._execution.is_untold = False
                    await self._journal.report(TurnPhase.TURN_PHASE_PROMPTED, reason)
                    told = reason
        except TurnAbandoned as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 (a fault of ours: the turn ends and says so)
            self._fail(error)

    async def _try_to_store(self, question: Question, slot: Slot) -> None:
        try:
            await self._store(question, slot)
        except TurnAbandoned:
            raise
        except Exception as error:  # noqa: BLE001 (a fault of ours: the turn ends and says so)
            question.settle(WITHDRAWN)
            with suppress(ValueError):
                self._records.withdraw(slot)
            self._fail(error)

    async def _store(self, question: Question, slot: Slot) -> None:
        turn_seq = await self._records.reached(slot)
        await failpoint("runner.question.before_open")
        if self._execution.stopping:
            question.settle(WITHDRAWN)
        if question.answer.done():
            self._records.withdraw(slot)
            return
        try:
            response = await self._journal.open_interaction(turn_seq, question.opened)
        except InvalidArgument as error:
            question.settle(WITHDRAWN)
            text = f"a question of the agent cannot be stored: {error}"
            self._records.fill(slot, error_body("QUESTION_REFUSED", text, title=question.opened.title))
            return
        _log.info("question opened", interaction=question.opened.interaction_id, seq=response.seq)
        if response.seq:
            self._records.settle(slot)
        else:
            self._records.withdraw(slot)
        await failpoint("runner.question.opened")
        if outcome := _OUTCOMES.get(response.interaction.state):
            decided = response.interaction
            question.settle(Decision(outcome, decided.option_id, decided.values))

    def _fail(self, error: Exception) -> None:
        self._execution.work.interrupt(unexpected(error, self._execution.phase))

    def _give_up(self, error: TurnAbandoned) -> None:
        self._records.fail(error)
        self._execution.hold.interrupt(error)
