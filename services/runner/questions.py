"""The questions of a turn's agent that wait for users, and what was decided about them (T6, S8)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from moorage.common.v1.record_pb2 import InteractionOpened, InteractionOutcome

from services.common.clock import Clock

S = TypeVar("S")
T = TypeVar("T")

WAITS_FOR_AGENT: Final = "for the agent"
_REJECTION: Final = "reject_once"
_FOR_ONCE: Final = {"allow_always": "allow_once", "reject_always": "reject_once"}


@dataclass(frozen=True, slots=True)
class Decision:
    """How a question was settled; an ANSWERED one by this option, and with these values, a JSON object."""

    outcome: InteractionOutcome.ValueType
    option_id: str = ""
    values: str = ""


WITHDRAWN: Final = Decision(InteractionOutcome.INTERACTION_OUTCOME_CANCELLED)


class Question:
    """One question. `answer` is what the agent is told: the id of an option, or None for a withdrawn one.

    Whoever waits for the answer may cancel it; then none is wanted any more. Of an answer once and
    for all the agent is told that it goes for this once, where it offers that: the rest is kept by
    the session, where it can be taken back.
    """

    def __init__(self, opened: InteractionOpened) -> None:
        """It waits."""
        self.opened: Final = opened
        self.answer: Final[asyncio.Future[str | None]] = asyncio.get_running_loop().create_future()
        # What was filled in, once there is an answer.
        self.values = ""

    def settle(self, decision: Decision) -> None:
        """The first decision counts."""
        if not self.answer.done():
            self.values = decision.values
            self.answer.set_result(self._chosen(decision))

    def _chosen(self, decision: Decision) -> str | None:
        if decision.outcome == InteractionOutcome.INTERACTION_OUTCOME_ANSWERED:
            return self._for_once(decision.option_id)
        if decision.outcome == InteractionOutcome.INTERACTION_OUTCOME_EXPIRED:
            return self._of_kind(_REJECTION)
        return None

    def _for_once(self, option_id: str) -> str:
        kind = next((each.kind for each in self.opened.options if each.option_id == option_id), "")
        once = _FOR_ONCE.get(kind)
        return (self._of_kind(once) if once else None) or option_id

    def _of_kind(self, kind: str) -> str | None:
        return next((each.option_id for each in self.opened.options if each.kind == kind), None)


def derived(source: asyncio.Future[S], convert: Callable[[S], T]) -> asyncio.Future[T]:
    """What the source gives, converted; cancelling it cancels the source."""
    result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def settle(source: asyncio.Future[S]) -> None:
        if source.cancelled():
            result.cancel()
        elif not result.done():
            result.set_result(convert(source.result()))

    source.add_done_callback(settle)
    result.add_done_callback(lambda result: result.cancelled() and source.cancel())
    return result


class Questions:
    """The questions of one turn; what was decided about others, or twice, changes nothing."""

    def __init__(self, clock: Clock) -> None:
        """None waits."""
        self.changed: Final = asyncio.Event()
        self._clock = clock
        self._waiting: dict[str, Question] = {}
        self._waited_until = -math.inf

    def add(self, question: Question) -> None:
        """From now on it waits, until it has an answer or none is wanted any more."""
        interaction_id = question.opened.interaction_id
        self._waiting[interaction_id] = question
        self.changed.set()
        question.answer.add_done_callback(lambda _: self._remove(interaction_id))

    def settle(self, interaction_id: str, decision: Decision) -> None:
        """Tell what was decided."""
        if question := self._waiting.get(interaction_id):
            question.settle(decision)

    @property
    def silence(self) -> float:
        """Seconds for which no question has waited: an agent that waits is not silent."""
        return 0.0 if self._waiting else self._clock.boottime() - self._waited_until

    @property
    def waiting_reason(self) -> str:
        """What the turn waits for, in words."""
        match [question.opened.title for question in self._waiting.values()]:
            case []:
                return WAITS_FOR_AGENT
            case [title]:
                return f"for an answer: {title}"
            case titles:
                return f"for answers to {len(titles)} questions"

    def _remove(self, interaction_id: str) -> None:
        del self._waiting[interaction_id]
        self._waited_until = self._clock.boottime()
        self.changed.set()
