"""The rules of questions by themselves, under arbitrary orders of what can happen to a turn."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.common.v1 import record_pb2

from services.common.errors import MoorageError
from services.session.interactions import InteractionState, Settlement, check_question
from services.session.journal.endings import Ending
from services.session.journal.locked import Append, JournalTurn
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.records import RecordKind, hash_of
from services.session.turns import EndReason, TurnState
from tests.session import samples
from tests.session.desks import question

HOUR = timedelta(hours=1)
COMPLETED = Ending(TurnState.COMPLETED, EndReason.AGENT_ENDED)
NAMES = ("q1", "q2", "q3")


def begun() -> SessionJournal:
    turn = JournalTurn(
        turn_id="t1",
        state=TurnState.ADMITTED,
        end_reason=None,
        phase=None,
        token=None,
        attempt_id=None,
        runner_id=None,
        prompt_sent=False,
        last_turn_seq=0,
        stopped_for=None,
        admit_time=samples.TIME,
        pending=[],
    )
    journal = SessionJournal(key=SessionKey("default", "s1"), token=0, head_seq=1, turns={"t1": turn})
    journal.show(1, EndReason.TAKEN_OVER)
    journal.begin("t1", 1, "a1", "runner/1")
    return journal


def ask(journal: SessionJournal, name: str) -> None:
    asked = question(name)
    body = record_pb2.RecordBody(interaction_opened=asked).SerializeToString()
    turn_seq = journal.turns["t1"].last_turn_seq + 1
    append = Append(turn_seq, RecordKind.INTERACTION_OPENED, body, hash_of(body))
    journal.ask("t1", "a1", append, check_question("interaction", asked), HOUR)


def act(journal: SessionJournal, action: str, name: str) -> None:
    """What the store would let happen: only a pending question is settled, and a name is used once."""
    turn = journal.turns["t1"]
    pending, used = name in turn.pending, {opened.question.interaction_id for opened in journal.opened}
    match action:
        case "ask" if name not in used:
            ask(journal, name)
        case "answer" if pending:
            journal.settle(turn, Settlement(name, InteractionState.ANSWERED, "client", "yes"))
        case "expire" if pending:
            journal.settle(turn, Settlement(name, InteractionState.EXPIRED, "expiry"))
        case "stop" if turn.state.in_progress and not turn.stopping:
            journal.stop(turn, "command_1", EndReason.USER_STOP)
        case "finish":
            journal.finish("t1", "a1", turn.last_turn_seq, COMPLETED)
        case "take over":
            journal.show(2, EndReason.TAKEN_OVER)


ACTIONS = st.sampled_from(["ask", "ask", "ask", "answer", "answer", "expire", "stop", "finish", "take over"])


@settings(deadline=None)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from(NAMES)), max_size=14))
def test_each_question_has_one_outcome_and_a_turn_waits_for_those_without(
    actions: list[tuple[str, str]],
) -> None:
    journal = begun()
    turn = journal.turns["t1"]
    for action, name in actions:
        with contextlib.suppress(MoorageError):
            act(journal, action, name)
        opened = [each.question.interaction_id for each in journal.opened]
        settled = [each.interaction_id for each in journal.settlements]
        assert turn.pending == [each for each in opened if each not in settled]
        assert len(set(settled)) == len(settled)
        assert (turn.state is TurnState.AWAITING_INPUT) == bool(turn.pending)
        assert not (turn.stopping or not turn.state.in_progress) or not turn.pending
    kinds = Counter(record.kind for record in journal.records)
    assert kinds[RecordKind.INTERACTION_OPENED] == len(journal.opened)
    assert kinds[RecordKind.INTERACTION_CLOSED] == len(journal.settlements)
    assert [record.seq for record in journal.records] == list(range(2, journal.head_seq + 1))
    names = [record.record_id for record in journal.records if record.record_id]
    assert len(set(names)) == len(names)
    if not turn.state.in_progress:
        assert journal.records[-1].kind is RecordKind.TURN_ENDED
        assert turn.turn_id in journal.silenced


def test_a_stopping_turn_asks_nothing_and_keeps_its_number() -> None:
    journal = begun()
    ask(journal, "q1")
    journal.stop(journal.turns["t1"], "command_1", EndReason.USER_STOP)
    ask(journal, "q2")
    assert [each.question.interaction_id for each in journal.opened] == ["q1"]
    assert journal.turns["t1"].last_turn_seq == 1
    assert journal.settlements == [Settlement("q1", InteractionState.CANCELLED, "command_1")]
    assert not journal.settlements[0].delivered
