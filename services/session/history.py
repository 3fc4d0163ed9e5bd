"""What was said before a turn, as much of it as a new native session can be told (T7)."""

from __future__ import annotations

from typing import Final, NamedTuple

from services.session.messages import is_continued, merge
from services.session.records import Record, RecordKind

DEFAULT_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 1024 * 1024
# They tell about the machinery, not about the conversation.
LEFT_OUT: Final = (
    RecordKind.TURN_STARTED,
    RecordKind.USAGE,
    RecordKind.RAW_JSON,
    RecordKind.AGENT_COMMANDS,
    RecordKind.AGENT_MODE,
    RecordKind.AGENT_OPTIONS,
    RecordKind.AGENT_SESSION_INFO,
    RecordKind.WORKSPACE_PREPARED,
)

# What a record in an answer has at most besides its names and its body.
_FRAME: Final = 64


class _Taken(NamedTuple):
    record: Record
    size: int


class History:
    """Takes records newest first, as long as they fit.

    So the newest turns are whole. Of a turn that is cut the prompt and the end are kept.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of the records as they are sent."""
        self._room = max_bytes
        self._max_bytes = max_bytes
        self._taken: list[_Taken] = []
        self.cut_turn_id = ""

    @property
    def truncated(self) -> bool:
        """Whether a record was left out for its size."""
        return bool(self.cut_turn_id)

    def take(self, record: Record) -> bool:
        """Take the next older record; False when it does not fit, and nothing older is to be taken."""
        size = self._size_of(record)
        if size > self._room:
            self.cut_turn_id = record.turn_id
            return False
        self._taken.append(_Taken(record, size))
        self._room -= size
        return True

    def keep_prompt(self, prompt: Record) -> None:
        """Take the prompt of the turn that was cut, in place of what came after it."""
        size = self._size_of(prompt)
        while self._taken and self._taken[-1].record.turn_id == self.cut_turn_id and size > self._room:
            self._room += self._taken.pop().size
        if self._taken and self._taken[-1].record.turn_id == self.cut_turn_id:
            self._taken.append(_Taken(prompt, size))

    def records(self) -> list[Record]:
        """What was taken, oldest first, messages in one piece."""
        return merge((taken.record for taken in reversed(self._taken)), longest=self._max_bytes)

    def _size_of(self, record: Record) -> int:
        if self._taken and is_continued(record, self._taken[-1].record):
            return len(record.body)
        names = len(record.session_id) + len(record.turn_id) + len(record.record_id)
        return len(record.body) + names + _FRAME
