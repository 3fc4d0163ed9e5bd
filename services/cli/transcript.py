"""Renders records for people as they come."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from moorage.common.v1 import content_pb2, record_pb2, turn_pb2

from services.cli.output import Output

_ENDED = {record_pb2.TOOL_CALL_STATUS_COMPLETED: "✓", record_pb2.TOOL_CALL_STATUS_FAILED: "✗"}
_MOST_LINES = 20
_STANDING = "standing_"
_STEPS = {"completed": "✓", "in_progress": "…"}


def text_of(block: content_pb2.ContentBlock) -> str:
    """A block in words."""
    kind = block.WhichOneof("block")
    if kind == "text":
        return block.text.text
    if kind == "resource_link":
        return f"<{block.resource_link.uri}>"
    if kind == "resource":
        return f"<{block.resource.uri}>"
    return f"<{kind}>"


def state_name(state: turn_pb2.TurnState.ValueType) -> str:
    """`COMPLETED` for TURN_STATE_COMPLETED."""
    return turn_pb2.TurnState.Name(state).removeprefix("TURN_STATE_")


def reason_name(reason: turn_pb2.EndReason.ValueType) -> str:
    """`AGENT_ENDED` for END_REASON_AGENT_ENDED."""
    return turn_pb2.EndReason.Name(reason).removeprefix("END_REASON_")


class Transcript:
    """Prints a session's records; pieces of one message are joined on one line."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open_message = ""
        self._shown = ""
        self._told = ""

    def show(self, record: record_pb2.Record) -> None:
        """Print one record."""
        body = record.body
        kind = body.WhichOneof("body")
        if kind == "agent_message":
            self._piece("message", body.agent_message.message_id, text_of(body.agent_message.content), "")
        elif kind == "thought":
            self._piece("thought", body.thought.message_id, text_of(body.thought.content), "dim italic")
        else:
            self.close()
            self._whole(kind or "", body)

    def close(self) -> None:
        """End the line of an open message."""
        if self._open_message and not self._shown.endswith("\n"):
            self._output.line("")
        self._open_message = ""

    @property
    def between_lines(self) -> bool:
        """Whether what was printed last ended its line."""
        return not self._open_message or self._shown.endswith("\n")

    def _piece(self, kind: str, message_id: str, text: str, style: str) -> None:
        message = f"{kind} {message_id}"
        if self._open_message != message:
            self.close()
        self._open_message, self._shown = message, text
        self._output.piece(text, style)

    def _whole(self, kind: str, body: record_pb2.RecordBody) -> None:
        show: dict[str, Callable[[], None]] = {
            "user_message": lambda: self._line(_quoted(map(text_of, body.user_message.content)), "bold cyan"),
            "tool_call": lambda: self._line(f"⚙ {body.tool_call.title}", "yellow"),
            "tool_update": lambda: self._tool_update(body.tool_update),
            "plan": lambda: self._plan(body.plan),
            "interaction_opened": lambda: self._line(f"? {body.interaction_opened.title}", "bold magenta"),
            "interaction_closed": lambda: self._line(_settled(body.interaction_closed), "magenta"),
            "error": lambda: self._error(body.error.error),
            "agent_mode": lambda: self._mode(body.agent_mode),
            "turn_ended": lambda: self._ended(body.turn_ended),
        }
        if kind in show:
            show[kind]()

    def _line(self, text: str, style: str) -> None:
        self._output.line(text, style)

    def _mode(self, mode: record_pb2.AgentMode) -> None:
        # The modes to choose from are told at the begin; what people want to see is a change.
        if not mode.modes:
            self._line(f"mode: {mode.mode_id}", "dim")

    def _plan(self, plan: record_pb2.Plan) -> None:
        for entry in plan.entries:
            self._line(f"{_STEPS.get(entry.status, '·')} {entry.content}", "dim")

    def _tool_update(self, update: record_pb2.ToolUpdate) -> None:
        for item in update.content:
            if text := _shown_by(item).rstrip("\n"):
                self._output.line(_indented(text), "yellow")
        if mark := _ENDED.get(update.status):
            self._output.line(mark, "yellow")

    def _error(self, error: turn_pb2.TurnError) -> None:
        if error.message and error.message != self._told:
            self._output.line(f"{error.code}: {error.message}", "red")
        self._told = error.message

    def _ended(self, ended: record_pb2.TurnEnded) -> None:
        self._error(ended.error)
        self._told = ""
        told = f"— {state_name(ended.state)} ({reason_name(ended.end_reason)})"
        self._output.line(told, "dim" if ended.state == turn_pb2.TURN_STATE_COMPLETED else "red")


def _settled(closed: record_pb2.InteractionClosed) -> str:
    outcome = record_pb2.InteractionOutcome.Name(closed.outcome).removeprefix("INTERACTION_OUTCOME_")
    stands = ", by an answer that stands" if closed.settled_by.startswith(_STANDING) else ""
    return f"  {outcome.lower()} {closed.option_id}".rstrip() + stands


def _quoted(texts: Iterable[str]) -> str:
    return "\n".join(f"> {line}" for text in texts for line in text.split("\n"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _shown_by(item: record_pb2.ToolContent) -> str:
    kind = item.WhichOneof("content")
    if kind == "block":
        return text_of(item.block)
    return _diff_of(item.diff) if kind == "diff" else ""


def _diff_of(diff: record_pb2.FileDiff) -> str:
    """The beginning of what changes in a file."""
    old = diff.old_text.splitlines() if diff.HasField("old_text") else []
    changes = [*difflib.unified_diff(old, diff.new_text.splitlines(), lineterm="", n=1)][2:]
    more = f"… {len(changes) - _MOST_LINES} more lines" if len(changes) > _MOST_LINES else ""
    return "\n".join((f"changes {diff.path}", *changes[:_MOST_LINES], *filter(None, (more,))))
