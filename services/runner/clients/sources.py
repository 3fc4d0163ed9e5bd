"""One turn's records as the journal sees them: what to send, and what an answer means (R1, R3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.session.v1 import journal_pb2

from services.common.errors import name_of
from services.fencing.leases import HeldLease
from services.runner.endings import TurnAbandoned
from services.runner.executions import Attempt
from services.runner.records import RecordBuffer, error_body

_LATER: Final = frozenset(
    (
        ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE,
        ErrorReason.ERROR_REASON_SHUTTING_DOWN,
        ErrorReason.ERROR_REASON_INTERNAL,
        ErrorReason.ERROR_REASON_CANCELLED,
    )
)
# A record that the journal cannot store for a fault of its own must not hold up all others for ever.
_MOST_FAULTS: Final = 20


class Source:
    """A turn's buffer with the names and the grant that its records are sent under."""

    def __init__(
        self,
        attempt: Attempt,
        lease: HeldLease,
        buffer: RecordBuffer,
        refused: Callable[[TurnAbandoned], None],
    ) -> None:
        """`refused` is called when nothing more will be stored."""
        self.buffer: Final = buffer
        self._attempt = attempt
        self._lease = lease
        self._refused = refused
        self._expired = False
        self._replaced = 0
        self._faults = 0

    def take(self) -> journal_pb2.RecordAppend | None:
        """The next record to send, if there is one and the lease is held."""
        if self.buffer.has_unsent and not self._lease.held:
            self._abandon("the lease of the session is lost")
        record = self.buffer.take()
        if record is None:
            return None
        return journal_pb2.RecordAppend(
            grant=self._lease.grant,
            project=self._attempt.project,
            session_id=self._attempt.session_id,
            turn_id=self._attempt.turn_id,
            attempt_id=self._attempt.attempt_id,
            turn_seq=record.turn_seq,
            body=record.body,
        )

    def settle(self, append: journal_pb2.RecordAppend, result: journal_pb2.RecordAppendResult) -> bool:
        """Act on an answer; False when the journal cannot store the record now."""
        if not result.HasField("error"):
            self._expired = False
            self._faults = 0
            self.buffer.acknowledge(append.turn_seq)
            return True
        return self._settle_error(append, result.error)

    def _settle_error(self, append: journal_pb2.RecordAppend, error: journal_pb2.RecordAppendError) -> bool:
        if error.reason == ErrorReason.ERROR_REASON_RECORD_GAP:
            return self._go_back_to(error)
        if error.reason == ErrorReason.ERROR_REASON_INVALID_FIELD or self._is_one_fault_too_many(error):
            return self._replace(append, error)
        if error.reason in _LATER or self._is_outdated(append, error):
            self.buffer.resend()
            return False
        return self._abandon(f"{name_of(error.reason)}: {error.message}")

    def _is_one_fault_too_many(self, error: journal_pb2.RecordAppendError) -> bool:
        self._faults += error.reason == ErrorReason.ERROR_REASON_INTERNAL
        return self._faults > _MOST_FAULTS

    def _go_back_to(self, error: journal_pb2.RecordAppendError) -> bool:
        expected = int(error.metadata.get("expected", "0"))
        if not self.buffer.knows(expected):
            return self._abandon(f"record {expected} is acknowledged and yet missing in the journal")
        self.buffer.acknowledge(expected - 1)
        self.buffer.resend()
        return False

    def _replace(self, append: journal_pb2.RecordAppend, error: journal_pb2.RecordAppendError) -> bool:
        if self._replaced == append.turn_seq:
            return self._abandon(f"a record is refused: {error.message}")
        self._replaced = append.turn_seq
        self._faults = 0
        kind = append.body.WhichOneof("body")
        body = error_body(
            "RECORD_REFUSED", f"a record of kind {kind} cannot be stored: {error.message}", kind=kind
        )
        self.buffer.replace(append.turn_seq, body)
        self.buffer.resend()
        return True

    def _is_outdated(self, append: journal_pb2.RecordAppend, error: journal_pb2.RecordAppendError) -> bool:
        """Whether the grant expired on the way while the lease was renewed."""
        if error.reason != ErrorReason.ERROR_REASON_LEASE_EXPIRED or self._expired:
            return False
        self._expired = append.grant != self._lease.grant
        return self._expired

    def _abandon(self, cause: str) -> bool:
        error = TurnAbandoned(cause)
        self.buffer.fail(error)
        self._refused(error)
        return True
