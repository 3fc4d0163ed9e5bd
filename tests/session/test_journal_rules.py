"""The journal's rules by themselves, under arbitrary orders of writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.errors import MoorageError
from services.session.journal.endings import Ending
from services.session.journal.locked import Append, JournalTurn, RecordConflict, RecordGap
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.records import RecordKind, hash_of
from services.session.turns import EndReason, TurnEnded, TurnState
from tests.session import samples

COMPLETED = Ending(TurnState.COMPLETED, EndReason.AGENT_ENDED)


def journal(last_turn_seq: int = 0) -> SessionJournal:
    turn = JournalTurn(
        *("t1", TurnState.ADMITTED, None, None, None, None, None, False, last_turn_seq),
        *(None, samples.TIME, []),
    )
    return SessionJournal(key=SessionKey("default", "s1"), token=0, head_seq=1, turns={"t1": turn})


def begun(token: int = 1) -> SessionJournal:
    stored = journal()
    stored.show(token, EndReason.TAKEN_OVER)
    stored.begin("t1", token, "a1", "runner/1")
    return stored


def piece(turn_seq: int, body: bytes | None = None) -> Append:
    content = b"body %d" % turn_seq if body is None else body
    return Append(turn_seq, RecordKind.AGENT_MESSAGE, content, hash_of(content))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=40))
def test_however_records_are_sent_again_each_is_stored_once_and_in_order(
    ranges: list[tuple[int, int]],
) -> None:
    stored = begun()
    acknowledged: dict[int, int] = {}
    for first, last in [*ranges, (1, 30)]:
        for turn_seq in range(first, last + 1):
            with contextlib.suppress(RecordGap):
                seq = stored.append("t1", "a1", piece(turn_seq))
                assert acknowledged.setdefault(turn_seq, seq) == seq
    own = [record for record in stored.records if record.turn_seq is not None]
    assert [record.turn_seq for record in own] == list(range(1, 31))
    assert [record.body for record in own] == [b"body %d" % number for number in range(1, 31)]
    assert acknowledged == {record.turn_seq: record.seq for record in own if record.turn_seq}
    assert [record.seq for record in stored.records] == list(range(2, 33))


class Story:
    """A journal to which writes happen; `token` is the highest one shown."""

    def __init__(self) -> None:
        self.journal = begun()
        self.turn = self.journal.turn("t1")
        self.token = 1

    def append(self) -> None:
        self.journal.append("t1", "a1", piece(self.turn.last_turn_seq + 1))

    def again(self) -> None:
        self.journal.append("t1", "a1", piece(max(self.turn.last_turn_seq, 1)))

    def conflict(self) -> None:
        self.journal.append("t1", "a1", piece(max(self.turn.last_turn_seq, 1), b"other"))

    def finish(self) -> None:
        self.journal.finish("t1", "a1", self.turn.last_turn_seq, COMPLETED)

    def higher(self) -> None:
        self.token += 1
        assert self.journal.show(self.token, EndReason.LEASE_LOST)

    def lower(self) -> None:
        assert not self.journal.show(self.token - 1, EndReason.LEASE_LOST)


WRITES = [Story.append, Story.again, Story.conflict, Story.finish, Story.higher, Story.lower]


@given(st.lists(st.sampled_from(WRITES), max_size=25))
def test_whatever_happens_a_turn_ends_once_and_nothing_follows_its_end(
    writes: list[Callable[[Story], None]],
) -> None:
    story = Story()
    for write in writes:
        with contextlib.suppress(MoorageError):
            write(story)
    stored = story.journal
    kinds = [record.kind for record in stored.records]
    assert stored.token == story.token
    assert [record.seq for record in stored.records] == list(range(2, stored.head_seq + 1))
    assert kinds.count(RecordKind.TURN_ENDED) == len(stored.endings) == (not story.turn.state.begun)
    assert RecordKind.TURN_ENDED not in kinds[:-1]
    assert [ending.last_seq for ending in stored.endings] in ([], [stored.head_seq])


def test_one_record_of_a_kind_is_named_after_the_turn() -> None:
    stored = begun()
    stored.show(2, EndReason.TAKEN_OVER)
    assert [record.record_id for record in stored.records] == ["t1/turn_started", "t1/error", "t1/turn_ended"]


def test_a_journal_without_changes_is_not_stored() -> None:
    stored = journal()
    assert not stored.changed
    assert stored.show(0, EndReason.TAKEN_OVER)
    assert not stored.changed
    stored.show(1, EndReason.TAKEN_OVER)
    assert stored.changed


def test_a_lower_turn_is_not_finished_by_the_token_that_ended_it() -> None:
    stored = begun()
    stored.show(2, EndReason.TAKEN_OVER)
    with pytest.raises(TurnEnded):
        stored.finish("t1", "a1", 0, COMPLETED)


def test_a_conflict_names_what_is_stored() -> None:
    stored = begun()
    stored.append("t1", "a1", piece(1))
    with pytest.raises(RecordConflict) as refusal:
        stored.append("t1", "a1", piece(1, b"other"))
    assert refusal.value.metadata == {"session_id": "s1", "turn_id": "t1", "turn_seq": "1", "seq": "3"}
