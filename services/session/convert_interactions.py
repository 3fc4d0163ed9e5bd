"""Interactions to the contract."""

from __future__ import annotations

from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.session.convert import timestamp
from services.session.interactions import Interaction
from services.session.standing import StandingAnswer


def interaction(stored: Interaction) -> session_pb2.Interaction:
    """An interaction as clients see it."""
    found = _asked(stored.session_id, stored.turn_id, stored.asked)
    decided = session_pb2.Interaction(
        state=session_pb2.InteractionState.Value(f"INTERACTION_STATE_{stored.state}"),
        option_id=stored.option_id,
        values=stored.answer_values,
        settled_by=stored.settled_by,
        create_time=timestamp(stored.create_time),
        expire_time=timestamp(stored.expire_time),
        settle_time=timestamp(stored.settle_time),
    )
    found.MergeFrom(decided)
    return found


def cancelled(session_id: str, turn_id: str, asked: record_pb2.InteractionOpened) -> session_pb2.Interaction:
    """A question that was not stored, since its turn is being stopped."""
    found = _asked(session_id, turn_id, asked)
    found.state = session_pb2.INTERACTION_STATE_CANCELLED
    return found


def _asked(session_id: str, turn_id: str, asked: record_pb2.InteractionOpened) -> session_pb2.Interaction:
    return session_pb2.Interaction(
        interaction_id=asked.interaction_id,
        session_id=session_id,
        turn_id=turn_id,
        kind=asked.kind,
        title=asked.title,
        tool_call_id=asked.tool_call_id,
        options=asked.options,
        schema=asked.schema,
        tool_kind=asked.tool_kind,
    )


def standing_answer(stored: StandingAnswer) -> session_pb2.StandingAnswer:
    """A standing answer as clients see it."""
    return session_pb2.StandingAnswer(
        standing_answer_id=stored.standing_answer_id,
        session_id=stored.session_id,
        tool_kind=stored.tool_kind,
        title=stored.title,
        allow=stored.allow,
        interaction_id=stored.interaction_id,
        create_time=timestamp(stored.create_time),
        revoke_time=timestamp(stored.revoke_time),
    )
