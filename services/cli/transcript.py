"""Renders records for people as they come."""

from __future__ import annotations

from moorage.common.v1 import content_pb2, record_pb2, turn_pb2

from services.cli.output import Output

_STATUS = {
    record_pb2.TOOL_CALL_STATUS_COMPLETED: "✓",
    record_pb2.TOOL_CALL_STATUS_FAILED: "✗",
    record_pb2.TOOL_CALL_STATUS_IN_PROGRESS: "…",
    record_pb2.TOOL_CALL_STATUS_PENDING: "…",
    record_pb2.TOOL_CALL_STATUS_UNSPECIFIED: "",
}


def text_of(block: content_pb2.ContentBlock) -> str:
    """A block in words."""
    kind = block.WhichOneof("block")
    if kind == "text":
        return block.text.text
    if kind == "resource_link":
        return f"<{block.resource_link.uri}>"
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

    def show(self, record: record_pb2.Record) -> None:
        """Print one record."""
        body = record.body
        kind = body.WhichOneof("body")
        if kind == "agent_message":
            self._piece(body.agent_message.message_id, text_of(body.agent_message.content), "")
        elif kind == "thought":
            self._piece(body.thought.message_id, text_of(body.thought.content), "dim italic")
        else:
            self.close()
            self._whole(kind or "", body)

    def close(self) -> None:
        """End the line of an open message."""
        if self._open_message:
            self._open_message = ""
            self._output.line("")

    def _piece(self, message_id: str, text: str, style: str) -> None:
        if self._open_message and self._open_message != message_id:
            self.close()
        self._open_message = message_id
        self._output.piece(text, style)

    def _whole(self, kind: str, body: record_pb2.RecordBody) -> None:
        show = self._output.line
        if kind == "user_message":
            show("> " + "\n> ".join(text_of(block) for block in body.user_message.content), "bold cyan")
        elif kind == "tool_call":
            show(f"⚙ {body.tool_call.title}", "yellow")
        elif kind == "tool_update":
            self._tool_update(body.tool_update)
        elif kind == "plan":
            for entry in body.plan.entries:
                show(f"  [{entry.status}] {entry.content}", "dim")
        elif kind == "error":
            show(f"{body.error.error.code}: {body.error.error.message}", "red")
        elif kind == "turn_ended":
            self._ended(body.turn_ended)

    def _tool_update(self, update: record_pb2.ToolUpdate) -> None:
        shown = "\n".join(text_of(item.block) for item in update.content if item.HasField("block"))
        mark = _STATUS[update.status]
        if shown or mark in "✓✗":
            self._output.line("\n".join(filter(None, (shown.rstrip("\n"), mark))), "yellow")

    def _ended(self, ended: record_pb2.TurnEnded) -> None:
        told = f"— {state_name(ended.state)} ({reason_name(ended.end_reason)})"
        good = ended.state == turn_pb2.TURN_STATE_COMPLETED
        detail = f": {ended.error.message}" if ended.error.message else ""
        self._output.line(told + detail, "dim" if good else "red")
