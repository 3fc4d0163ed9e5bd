"""A turn's writes to the journal, but for its records. Repeated until answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.record_pb2 import InteractionOpened
from moorage.common.v1.turn_pb2 import TurnPhase
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub

from services.common.clock import Clock
from services.common.errors import Internal, InvalidArgument, MoorageError, ResourceExhausted
from services.common.loops import Failures
from services.common.status import from_rpc_error
from services.fencing.leases import HeldLease
from services.runner.endings import UNCERTAIN, Ending, TurnAbandoned, refusal
from services.runner.executions import Attempt

if TYPE_CHECKING:
    from moorage.session.v1.journal_pb2_grpc import JournalServiceAsyncStub

# A fault of the service that does not go away must not keep a session for ever.
_MOST_FAULTS: Final = 20
# The service tells of no exhausted resource: an answer that is too large says so itself.
_FAULTS: Final = (Internal, ResourceExhausted)
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 2.0

RequestT = TypeVar(
    "RequestT",
    journal_pb2.BeginTurnRequest,
    journal_pb2.ReportProgressRequest,
    journal_pb2.FinishTurnRequest,
    journal_pb2.ListHistoryRequest,
    journal_pb2.OpenInteractionRequest,
)
TurnRequestT = TypeVar(
    "TurnRequestT",
    journal_pb2.BeginTurnRequest,
    journal_pb2.ReportProgressRequest,
    journal_pb2.FinishTurnRequest,
    journal_pb2.OpenInteractionRequest,
)
ResponseT = TypeVar("ResponseT")


class JournalClient:
    """The journal of all sessions; `timeout` bounds a call, in seconds."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, timeout: float) -> None:
        """The channel leads to the journal's port, to as many replicas as there are."""
        self._stub: JournalServiceAsyncStub = JournalServiceStub(channel)
        self._clock = clock
        self._timeout = timeout

    def of(self, attempt: Attempt, lease: HeldLease) -> TurnJournal:
        """The part of it that an attempt writes."""
        return TurnJournal(self._stub, attempt, lease, self._clock, self._timeout)


class TurnJournal:
    """What one attempt writes. Each method raises TurnAbandoned when it may not go on writing."""

    def __init__(
        self,
        stub: JournalServiceAsyncStub,
        attempt: Attempt,
        lease: HeldLease,
        clock: Clock,
        timeout: float,
    ) -> None:
        """See JournalClient.of."""
        self._stub = stub
        self._attempt = attempt
        self._lease = lease
        self._clock = clock
        self._timeout = timeout

    async def begin(self, warm: journal_pb2.RunObservation | None = None) -> journal_pb2.BeginTurnResponse:
        """Begin the turn: the first outside effect. TurnRefused when its state forbids it.

        With what is known of a kept agent the mark `prompt_sent` is set, too.
        """
        request = self._named(journal_pb2.BeginTurnRequest(prompt_sent=warm is not None, observation=warm))
        try:
            return await self._repeat("beginning a turn", self._stub.BeginTurn, request)
        except MoorageError as error:
            raise refusal(error) from error

    async def report(
        self,
        phase: TurnPhase.ValueType = TurnPhase.TURN_PHASE_UNSPECIFIED,
        waiting_reason: str = "",
        *,
        phase_timeout: float | None = None,
        prompt_sent: bool = False,
        observation: journal_pb2.RunObservation | None = None,
    ) -> None:
        """Tell how far the turn is; `phase_timeout` in seconds from now."""
        request = journal_pb2.ReportProgressRequest(
            phase=phase, waiting_reason=waiting_reason, prompt_sent=prompt_sent, observation=observation
        )
        if phase_timeout is not None:
            request.phase_timeout.CopyFrom(_duration(phase_timeout))
        await self._write("reporting progress", self._stub.ReportProgress, self._named(request))

    async def open_interaction(
        self, turn_seq: int, asked: InteractionOpened
    ) -> journal_pb2.OpenInteractionResponse:
        """Store a question as the record of this number. InvalidArgument when it cannot be put to users."""
        request = journal_pb2.OpenInteractionRequest(turn_seq=turn_seq, interaction=asked)
        try:
            name, method = "opening a question", self._stub.OpenInteraction
            return await self._repeat(name, method, self._named(request))
        except InvalidArgument:
            raise
        except MoorageError as error:
            raise TurnAbandoned.after(error) from error

    async def history(self, max_bytes: int) -> journal_pb2.ListHistoryResponse:
        """What was said before the turn, the newest of it."""
        request = journal_pb2.ListHistoryRequest(
            project=self._attempt.project,
            session_id=self._attempt.session_id,
            before_turn_id=self._attempt.turn_id,
            max_bytes=max_bytes,
        )
        return await self._write("reading the history", self._stub.ListHistory, request)

    async def finish(self, ending: Ending, last_turn_seq: int) -> None:
        """End the turn; all records up to `last_turn_seq` must be acknowledged."""
        request = journal_pb2.FinishTurnRequest(
            last_turn_seq=last_turn_seq,
            state=ending.state,
            end_reason=ending.reason,
            error=ending.error,
            stop_reason=ending.stop_reason,
            stop_method=ending.stop_method,
            runtime_after=ending.runtime_after,
            usage=ending.usage,
        )
        await self._write("finishing a turn", self._stub.FinishTurn, self._named(request))

    async def _write(
        self, name: str, method: Callable[..., Awaitable[ResponseT]], request: RequestT
    ) -> ResponseT:
        """Raises TurnAbandoned whatever the refusal is: a begun turn has nothing to go back to."""
        try:
            return await self._repeat(name, method, request)
        except MoorageError as error:
            raise TurnAbandoned.after(error) from error

    async def _repeat(
        self, name: str, method: Callable[..., Awaitable[ResponseT]], request: RequestT
    ) -> ResponseT:
        failures = Failures(name)
        faults = 0
        refused: Grant | None = None
        while True:
            grant = self._newest_grant()
            request.grant.CopyFrom(grant)
            try:
                return await method(request, timeout=self._timeout)
            except grpc.aio.AioRpcError as rpc_error:
                error = from_rpc_error(rpc_error)
            faults += isinstance(error, _FAULTS)
            if not self._may_repeat(error, grant, refused) or faults > _MOST_FAULTS:
                raise error
            refused = grant
            failures.report(error)
            await self._clock.sleep(failures.back_off(_FIRST_DELAY, _LONGEST_DELAY))

    def _newest_grant(self) -> Grant:
        """To be shown with a call; nothing is sent under a lost lease."""
        if not self._lease.held:
            raise TurnAbandoned("the lease of the session is lost")
        return self._lease.grant

    def _named(self, request: TurnRequestT) -> TurnRequestT:
        """Fill in whose write it is."""
        request.project = self._attempt.project
        request.session_id = self._attempt.session_id
        request.turn_id = self._attempt.turn_id
        request.attempt_id = self._attempt.attempt_id
        return request

    def _may_repeat(self, error: MoorageError, shown: Grant, refused: Grant | None) -> bool:
        if error.reason == ErrorReason.ERROR_REASON_LEASE_EXPIRED:
            # The call may have waited longer than its grant lived while the lease was renewed.
            return refused is None and shown is not self._lease.grant
        return isinstance(error, UNCERTAIN)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
