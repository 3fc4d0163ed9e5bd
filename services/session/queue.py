"""The queue (T2): which turns wait for the session's slot, in which order, and who gets it next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import ResourceExhausted
from services.session.journal.locked import JournalTurn, QueuePlace
from services.session.turns import TurnState


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """How many turns may wait in a session's queue, and for how long."""

    limit: int
    expiry: timedelta


class QueueFull(ResourceExhausted):
    """the queue of session {session_id} has {limit} turns already"""

    reason = ErrorReason.ERROR_REASON_QUEUE_FULL


def in_order(turns: Iterable[JournalTurn]) -> list[JournalTurn]:
    """Those of the turns that wait, the next one first."""
    waiting = [(turn.place.order, turn) for turn in turns if turn.place is not None]
    return [turn for _, turn in sorted(waiting, key=lambda each: each[0])]


def new_place(queue: list[JournalTurn], *, interrupt: bool) -> QueuePlace:
    """Before all others for a turn that interrupts, so that the newest of several comes first; else the last."""
    orders = [turn.place.order for turn in queue if turn.place is not None]
    order = min(orders, default=0) - 1 if interrupt else max(orders, default=0) + 1
    return QueuePlace(order, interrupt=interrupt, expired=False)


def next_up(queue: list[JournalTurn], ended: TurnState) -> JournalTurn | None:
    """Who gets the slot of a turn that ended so; None holds the queue until the next StartTurn."""
    for head in queue[:1]:
        if ended is TurnState.COMPLETED or (head.place is not None and head.place.interrupt):
            return head
    return None
