"""Closing or deleting a session: the operation that a replica takes up, and what it may wait for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from services.session.journal.rules import SessionKey
from services.session.sessions import OperationKind, RetentionPolicy


@dataclass(frozen=True, slots=True)
class CloseClaim:
    """A session that this replica alone closes or deletes, for a short time; `attempts` counts its claims.

    `gone`: nobody sees it any more, and what is left of it is to be removed.
    """

    key: SessionKey
    workspace_id: str
    retention: RetentionPolicy
    retention_ttl: timedelta | None
    traceparent: str
    attempts: int
    operation: OperationKind
    gone: bool


class NotYet(Exception):
    """The session cannot be closed or deleted now; the text says what is waited for.

    `seconds`: when to look again; without it that depends on how often it was tried.
    """

    def __init__(self, waiting_reason: str, seconds: float | None = None) -> None:
        """In words."""
        super().__init__(waiting_reason)
        self.waiting_reason = waiting_reason
        self.seconds = seconds
