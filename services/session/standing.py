"""Standing answers: what a user answered once for all questions about the same (T6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Self

from moorage.common.v1 import record_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import NotFound

_ALLOW: Final = ("allow_once", "allow_always")
_REJECT: Final = ("reject_once", "reject_always")
_STANDING: Final = {"allow_always": True, "reject_always": False}
# Who says yes once and for all to one of these does not mean the one file alone. What changes more
# than text, or leaves the workspace, is asked for each title anew.
_WHOLE_KINDS: Final = frozenset({"read", "search", "think", "edit"})


class Subject(NamedTuple):
    """What questions are about: a kind of tool, and of most kinds their title too."""

    tool_kind: str
    title: str

    @classmethod
    def of(cls, asked: record_pb2.InteractionOpened) -> Self | None:
        """The subject of a question whether a tool may run; None of others."""
        if asked.kind != record_pb2.INTERACTION_KIND_PERMISSION:
            return None
        whole = asked.tool_kind in _WHOLE_KINDS
        return cls(_storable(asked.tool_kind), "" if whole else _storable(asked.title))


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """A standing answer as it is stored, in force until `revoke_time`; `seq` is that of its question."""

    project: str
    session_id: str
    standing_answer_id: str
    tool_kind: str
    title: str
    allow: bool
    interaction_id: str
    seq: int
    create_time: datetime
    revoke_time: datetime | None

    def option_of(self, asked: record_pb2.InteractionOpened) -> str | None:
        """The option of a question that says the same, the narrowest of them; None when none does."""
        kinds = _ALLOW if self.allow else _REJECT
        offered = {option.kind: option.option_id for option in reversed(asked.options)}
        return next((offered[kind] for kind in kinds if kind in offered), None)


def stands(asked: record_pb2.InteractionOpened, option_id: str) -> bool | None:
    """Whether answering so allows or rejects once and for all; None when it is for this question only."""
    kind = next((option.kind for option in asked.options if option.option_id == option_id), "")
    return _STANDING.get(kind)


def _storable(text: str) -> str:
    """Without U+0000, which no column of text takes."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


class StandingAnswerNotFound(NotFound):
    """session {session_id} has no standing answer {standing_answer_id}"""

    reason = ErrorReason.ERROR_REASON_STANDING_ANSWER_NOT_FOUND
