"""Renders records for people as they come."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable
from functools import partial

from moorage.common.v1 import content_pb2, record_pb2, turn_pb2

from services.cli.output import Output
from services.cli.scene import STEPS

ENDED = {record_pb2.TOOL_CALL_STATUS_COMPLETED: "✓", record_pb2.TOOL_CALL_STATUS_FAILED: "✗"}
_MOST_LINES = 20
_STANDING = "standing_"


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
        """Nothing is printed before `show`."""
        self._output = output
        self._open_message = ""
        self._shown = ""
        self._told = ""

    def show(self, record: record_pb2.Record) -> None:
        """Print one record."""
        body = record.body
        if body.HasField("agent_message"):
            self._piece("message", body.agent_message.message_id, text_of(body.agent_message.content), "")
        elif body.HasField("thought"):
            self._piece("thought", body.thought.message_id, text_of(body.thought.content), "dim italic")
        elif show := self._shows(body).get(body.WhichOneof("body") or ""):
            self.close()
            show()

    def close(self) -> None:
        """End the line of an open message."""
        if self._open_message and not self._shown.endswith("\n"):
            self._output.line("")
        self._open_message = ""

    def leave(self) -> None:
        """Show no more, though the turn may go on."""
        self.close()

    def _piece(self, kind: str, message_id: str, text: str, style: str) -> None:
        message = f"{kind} {message_id}"
        if self._open_message != message:
            self.close()
        self._open_message, self._shown = message, text
        self._output.piece(text, style)

    def _shows(self, body: record_pb2.RecordBody) -> dict[str, Callable[[], None]]:
        """What is shown of other records, by kind; the rest is for programs."""
        asked = body.interaction_opened
        return {
            "user_message": lambda: self._line(_quoted(map(text_of, body.user_message.content)), "bold cyan"),
            "tool_call": partial(self._tool_call, body.tool_call),
            "tool_update": partial(self._tool_update, body.tool_update),
            "plan": partial(self._plan, body.plan),
            "interaction_opened": lambda: self._line(f"? {asked.title}", "bold magenta"),
            "interaction_closed": lambda: self._line(_settled(body.interaction_closed), "magenta"),
            "error": lambda: self._error(body.error.error),
            "agent_mode": partial(self._mode, body.agent_mode),
            "workspace_prepared": lambda: self._prepared(body.workspace_prepared),
            "turn_ended": partial(self._ended, body.turn_ended),
        }

    def _line(self, text: str, style: str) -> None:
        self._output.line(text, style)

    def _mode(self, mode: record_pb2.AgentMode) -> None:
        # The modes to choose from are told at the begin; what people want to see is a change.
        if not mode.modes:
            self._line(f"mode: {mode.mode_id}", "dim")

    def _prepared(self, prepared: record_pb2.WorkspacePrepared) -> None:
        how = _how_it_ended(prepared)
        mark, style = ("✗", "red") if how else ("✓", "yellow")
        self._line(f"{mark} {shlex.join(prepared.command)}{how}", style)
        if text := prepared.output.rstrip("\n"):
            self._line(indented(f"…\n{text}" if prepared.truncated else text), style)

    def _plan(self, plan: record_pb2.Plan) -> None:
        for entry in plan.entries:
            self._line(f"{STEPS.get(entry.status, '·')} {entry.content}", "dim")

    def _tool_call(self, call: record_pb2.ToolCall) -> None:
        self._line(f"⚙ {call.title}", "yellow")

    def _tool_update(self, update: record_pb2.ToolUpdate) -> None:
        if text := shown_by(update.content):
            self._line(indented(text), "yellow")
        if mark := ENDED.get(update.status):
            self._line(mark, "yellow")

    def _error(self, error: turn_pb2.TurnError) -> None:
        if error.message and error.message != self._told:
            self._line(f"{error.code}: {error.message}", "red")
        self._told = error.message

    def _ended(self, ended: record_pb2.TurnEnded) -> None:
        self._error(ended.error)
        self._told = ""
        told = f"— {state_name(ended.state)} ({reason_name(ended.end_reason)})"
        style = "dim" if ended.state == turn_pb2.TURN_STATE_COMPLETED else "red"
        self._line(" · ".join((told, *self._spent(ended))), style)

    def _spent(self, _ended: record_pb2.TurnEnded) -> Iterable[str]:
        return ()


def shown_by(contents: Iterable[record_pb2.ToolContent]) -> str:
    """What a tool shows, as text."""
    return "\n".join(filter(None, (_text_of_tool(item).rstrip("\n") for item in contents)))


def indented(text: str) -> str:
    """Below a title."""
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _how_it_ended(prepared: record_pb2.WorkspacePrepared) -> str:
    """Empty when it ended well."""
    how = prepared.WhichOneof("ended")
    memory = ", out of memory" * prepared.out_of_memory
    if how == "signal":
        return f": ended by {prepared.signal}{memory}"
    if how == "timeout":
        return f": ended after {prepared.timeout.ToSeconds()} s"
    return f": exit code {prepared.exit_code}{memory}" if prepared.exit_code else ""


def _settled(closed: record_pb2.InteractionClosed) -> str:
    outcome = record_pb2.InteractionOutcome.Name(closed.outcome).removeprefix("INTERACTION_OUTCOME_")
    stands = ", by an answer that stands" if closed.settled_by.startswith(_STANDING) else ""
    return f"  {outcome.lower()} {closed.option_id}".rstrip() + stands


def _quoted(texts: Iterable[str]) -> str:
    return "\n".join(f"> {line}" for text in texts for line in text.split("\n"))


def _text_of_tool(item: record_pb2.ToolContent) -> str:
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
