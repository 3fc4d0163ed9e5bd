"""Interactions: an agent's questions to users, their states, and why an answer is refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from moorage.common.v1 import record_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import FailedPrecondition, InvalidArgument, NotFound
from services.common.validation import check_id, check_present, check_size
from services.session.forms import check_schema, check_values

MAX_QUESTION: Final = 256 * 1024
_MAX_OPTIONS: Final = 64
_MAX_OPTION_ID: Final = 1024
# The kind of the option that goes with a form's values.
_FILLED_IN: Final = "allow_once"

# Who settled a question, if neither a command nor the end of its turn did.
CLIENT: Final = "client"
EXPIRY: Final = "expiry"


class InteractionKind(enum.StrEnum):
    """What kind of answer a question wants."""

    PERMISSION = "PERMISSION"
    CHOICE = "CHOICE"
    FORM = "FORM"


class InteractionState(enum.StrEnum):
    """PENDING -> ANSWERED | CANCELLED | EXPIRED; the first decision wins."""

    PENDING = "PENDING"
    ANSWERED = "ANSWERED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def outcome(self) -> record_pb2.InteractionOutcome.ValueType:
        """How a question in this state was settled."""
        name = "UNSPECIFIED" if self is InteractionState.PENDING else self
        return record_pb2.InteractionOutcome.Value(f"INTERACTION_OUTCOME_{name}")


@dataclass(frozen=True, slots=True)
class Question:
    """What a runner asks to have stored; `content` is a serialised moorage.common.v1.InteractionOpened."""

    interaction_id: str
    kind: InteractionKind
    content: bytes


@dataclass(frozen=True, slots=True)
class Interaction:
    """An interaction as it is stored; `question` is a serialised moorage.common.v1.InteractionOpened.

    `seq` and `turn_seq` are the numbers of the record that opened it. `settled_by` is CLIENT,
    EXPIRY, the id of a standing answer or of a command, or the end reason of the turn.
    `answer_values` is a JSON object, what was filled in.
    """

    project: str
    session_id: str
    interaction_id: str
    turn_id: str
    turn_seq: int
    seq: int
    kind: InteractionKind
    question: bytes
    state: InteractionState
    option_id: str
    answer_values: str
    settled_by: str
    create_time: datetime
    expire_time: datetime
    settle_time: datetime | None

    @property
    def asked(self) -> record_pb2.InteractionOpened:
        """The question."""
        return record_pb2.InteractionOpened.FromString(self.question)


class OpenedQuestion(NamedTuple):
    """A question to store, with the numbers of its record, and how long it waits for its answer."""

    turn_id: str
    turn_seq: int
    seq: int
    question: Question
    timeout: timedelta


class Answer(NamedTuple):
    """What a client decides about a question."""

    project: str
    session_id: str
    interaction_id: str
    option_id: str
    values: str = ""


@dataclass(frozen=True, slots=True)
class AnswerClaim:
    """A decision that this replica alone tells the runner, for a short time; `attempts` counts its claims."""

    project: str
    session_id: str
    turn_id: str
    interaction_id: str
    state: InteractionState
    option_id: str
    values: str
    traceparent: str
    attempts: int


class Settlement(NamedTuple):
    """A decision about a pending question."""

    interaction_id: str
    state: InteractionState
    settled_by: str
    option_id: str = ""
    values: str = ""

    @property
    def delivered(self) -> bool:
        """Whether the runner is told of it; what cancels a question reaches the runner by itself."""
        return self.state is not InteractionState.CANCELLED


class InteractionNotFound(NotFound):
    """session {session_id} has no interaction {interaction_id}"""

    reason = ErrorReason.ERROR_REASON_INTERACTION_NOT_FOUND


class InteractionNotPending(FailedPrecondition):
    """interaction {interaction_id} of session {session_id} is settled: {outcome} by {settled_by}"""

    reason = ErrorReason.ERROR_REASON_INTERACTION_NOT_PENDING


def check_question(field: str, asked: record_pb2.InteractionOpened) -> Question:
    """A question that can be put to users: with at least one option to choose. Else InvalidArgument."""
    interaction_id = check_id(f"{field}.interaction_id", asked.interaction_id)
    kind = _check_kind(f"{field}.kind", asked.kind)
    options = f"{field}.options"
    if not asked.options:
        raise InvalidArgument.of(options, "must not be empty")
    check_size(options, asked.options, _MAX_OPTIONS, "options")
    for index, option in enumerate(asked.options):
        check_present(f"{options}[{index}].option_id", option.option_id)
        check_size(f"{options}[{index}].option_id", option.option_id, _MAX_OPTION_ID)
    if len({option.option_id for option in asked.options}) < len(asked.options):
        raise InvalidArgument.of(options, "must have different option_ids")
    if kind is InteractionKind.FORM:
        check_schema(f"{field}.schema", asked.schema)
    content = asked.SerializeToString(deterministic=True)
    check_size(field, content, MAX_QUESTION)
    return Question(interaction_id, kind, content)


def check_answer(stored: Interaction, answer: Answer) -> str:
    """The values to store, if the question may be answered like this now.

    Raises InteractionNotPending, InvalidArgument.
    """
    if stored.state is not InteractionState.PENDING:
        raise not_pending(stored)
    asked = stored.asked
    kind = next((option.kind for option in asked.options if option.option_id == answer.option_id), None)
    if kind is None:
        raise InvalidArgument.of("option_id", f"{answer.option_id[:80]!r} is not one of those offered")
    if stored.kind is InteractionKind.FORM and kind == _FILLED_IN:
        return check_values("values", asked.schema, answer.values)
    if answer.values:
        raise InvalidArgument.of("values", "are not asked for")
    return ""


def not_pending(settled: Interaction) -> InteractionNotPending:
    """The refusal of a late answer, which tells what was decided."""
    return InteractionNotPending(
        session_id=settled.session_id,
        interaction_id=settled.interaction_id,
        outcome=settled.state,
        option_id=settled.option_id,
        settled_by=settled.settled_by,
    )


def _check_kind(field: str, kind: record_pb2.InteractionKind.ValueType) -> InteractionKind:
    match kind:
        case record_pb2.INTERACTION_KIND_PERMISSION:
            return InteractionKind.PERMISSION
        case record_pb2.INTERACTION_KIND_CHOICE:
            return InteractionKind.CHOICE
        case record_pb2.INTERACTION_KIND_FORM:
            return InteractionKind.FORM
        case _:
            raise InvalidArgument.of(field, "is required" if not kind else f"{int(kind)} is no kind")
