"""What the journal's answers about records mean (R1, R3, F7)."""

from __future__ import annotations

import pytest
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.session.v1 import journal_pb2

from services.common.clock import ManualClock
from services.runner.clients.sources import Source
from services.runner.endings import TurnAbandoned
from services.runner.records import RecordBuffer
from tests.runner.samples import ATTEMPT, grant, held_lease, message, renew


class Turn:
    """A source with three records, and what became of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lease = held_lease(self.clock)
        self.refusals: list[TurnAbandoned] = []
        self.buffer = RecordBuffer(lambda: None)
        self.source = Source(ATTEMPT, self.lease, self.buffer, self.refusals.append)

    async def send(self, count: int = 3) -> list[journal_pb2.RecordAppend]:
        for n in range(count):
            await self.buffer.add(message(str(n)))
        return self.rest()

    def rest(self) -> list[journal_pb2.RecordAppend]:
        appends = []
        while append := self.source.take():
            appends.append(append)
        return appends


def stored(seq: int = 10) -> journal_pb2.RecordAppendResult:
    return journal_pb2.RecordAppendResult(seq=seq)


def refused(reason: str, **metadata: str) -> journal_pb2.RecordAppendResult:
    value = ErrorReason.Value(f"ERROR_REASON_{reason}")
    error = journal_pb2.RecordAppendError(reason=value, message="because", metadata=metadata)
    return journal_pb2.RecordAppendResult(error=error)


async def test_a_record_is_sent_with_its_names_and_the_newest_grant() -> None:
    turn = Turn()
    await turn.buffer.add(message("1"))
    renew(turn.lease, 2, turn.clock)
    append = turn.source.take()
    assert append is not None
    assert (append.project, append.session_id, append.turn_id, append.attempt_id, append.turn_seq) == (
        *("default", "s1", "t1", "a1"),
        1,
    )
    assert append.grant == grant(2)


async def test_nothing_is_sent_once_the_lease_has_run_out() -> None:
    turn = Turn()
    await turn.buffer.add(message("1"))
    await turn.clock.advance(14.0)
    assert turn.source.take() is None
    assert len(turn.refusals) == 1
    with pytest.raises(TurnAbandoned):
        await turn.buffer.flush()


async def test_stored_records_are_forgotten() -> None:
    turn = Turn()
    for append in await turn.send():
        assert turn.source.settle(append, stored())
    await turn.buffer.flush()


@pytest.mark.parametrize("reason", ["DEPENDENCY_UNAVAILABLE", "SHUTTING_DOWN", "INTERNAL"])
async def test_what_cannot_be_stored_now_is_sent_again_in_order(reason: str) -> None:
    turn = Turn()
    first, second, third = await turn.send()
    assert turn.source.settle(first, stored())
    assert not turn.source.settle(second, refused(reason))
    assert not turn.source.settle(third, refused("RECORD_GAP", expected="2"))
    assert [append.turn_seq for append in turn.rest()] == [2, 3]
    assert not turn.refusals


async def test_a_record_that_the_journal_never_gets_stored_becomes_an_error_under_its_number() -> None:
    turn = Turn()
    append, *_ = await turn.send(2)
    for _ in range(20):
        assert not turn.source.settle(append, refused("INTERNAL"))
        append, _after = turn.rest()
        assert append.body == message("0")
    assert turn.source.settle(append, refused("INTERNAL"))
    append, after = turn.rest()
    assert append.body.error.error.code == "RECORD_REFUSED"
    assert turn.source.settle(append, stored())
    assert turn.source.settle(after, stored())
    await turn.buffer.flush()


async def test_a_gap_is_filled_from_the_expected_number_on() -> None:
    turn = Turn()
    await turn.send()
    appends = turn.rest()
    assert not appends
    again = await turn.send(1)
    assert not turn.source.settle(again[0], refused("RECORD_GAP", expected="3"))
    assert [append.turn_seq for append in turn.rest()] == [3, 4]


async def test_a_gap_before_what_was_acknowledged_ends_the_turn_here() -> None:
    turn = Turn()
    first, second, _ = await turn.send()
    turn.source.settle(first, stored())
    turn.source.settle(second, refused("RECORD_GAP", expected="1"))
    assert len(turn.refusals) == 1


@pytest.mark.parametrize("reason", ["STALE_OWNER", "TURN_ENDED", "RECORD_CONFLICT", "SESSION_NOT_FOUND"])
async def test_a_refusal_of_the_turn_ends_it_here(reason: str) -> None:
    turn = Turn()
    first, *_ = await turn.send()
    turn.source.settle(first, refused(reason))
    assert [str(refusal) for refusal in turn.refusals] == [f"{reason}: because"]
    with pytest.raises(TurnAbandoned):
        await turn.buffer.add(message("more"))
    assert turn.rest() == []


async def test_a_grant_that_expired_on_the_way_is_replaced_by_the_renewed_one_once() -> None:
    turn = Turn()
    first, *_ = await turn.send()
    renew(turn.lease, 2, turn.clock)
    assert not turn.source.settle(first, refused("LEASE_EXPIRED"))
    again = turn.rest()
    assert [append.turn_seq for append in again] == [1, 2, 3]
    assert {append.grant.payload for append in again} == {grant(2).payload}
    renew(turn.lease, 3, turn.clock)
    turn.source.settle(again[0], refused("LEASE_EXPIRED"))
    assert len(turn.refusals) == 1


async def test_an_expired_grant_that_is_still_the_newest_ends_the_turn_here() -> None:
    turn = Turn()
    first, *_ = await turn.send()
    turn.source.settle(first, refused("LEASE_EXPIRED"))
    assert len(turn.refusals) == 1


async def test_a_body_that_is_refused_becomes_an_error_under_its_number() -> None:
    turn = Turn()
    first, second, third = await turn.send()
    turn.source.settle(first, stored())
    turn.source.settle(second, refused("INVALID_FIELD"))
    turn.source.settle(third, refused("RECORD_GAP", expected="2"))
    again = turn.rest()
    assert [append.turn_seq for append in again] == [2, 3]
    assert again[0].body.error.error.code == "RECORD_REFUSED"
    assert again[1].body == message("2")
    turn.source.settle(again[0], refused("INVALID_FIELD"))
    assert len(turn.refusals) == 1
