"""A transcript on a terminal that is drawn again: what is finished is printed, the rest is told to a scene."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.v1 import record_pb2

from services.cli.output import Output
from services.cli.scene import Scene, Tool, lasting, tokens
from services.cli.transcript import ENDED, Transcript, indented, shown_by

_BEGINS = ("user_message", "turn_started")
_RUNS = "⚙"
# Characters of an unfinished line of which the end is drawn.
_DRAWN = 8192
_GOES_ON = ("tool_update", "plan", "usage")


class LiveTranscript(Transcript):
    """Prints whole lines only: a tool call once it has ended, with what it showed last, and the plan at the end."""

    def __init__(self, output: Output, scene: Scene) -> None:
        """The scene is what is drawn below what is printed."""
        super().__init__(output)
        self._scene = scene
        # Of the line that has not ended; it may become long.
        self._pieces: list[str] = []
        self._now = 0.0
        self._began = 0.0

    def show(self, record: record_pb2.Record) -> None:
        """Print one record, or tell the scene of it."""
        self._now = record.create_time.ToNanoseconds() / 1e9
        kind = record.body.WhichOneof("body") or ""
        if kind in _BEGINS:
            self._began = self._began or self._now
            self._scene.began = self._scene.began or self._now
        if kind in _GOES_ON:
            self._go_on(record.body)
        else:
            super().show(record)

    def close(self) -> None:
        """Print the line that an agent had not ended."""
        if line := "".join(self._pieces):
            self._line(line, self._scene.style)
        self._pieces.clear()
        self._scene.words, self._open_message = "", ""

    def leave(self) -> None:
        """Print also what has not ended."""
        self.close()
        for tool in self._scene.tools.values():
            self._tool_ended(tool, _RUNS)
        self._scene.clear()

    def _piece(self, kind: str, message_id: str, text: str, style: str) -> None:
        message = f"{kind} {message_id}"
        if self._open_message != message:
            self.close()
        self._open_message = message
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._line("".join((*self._pieces, whole)), style)
            self._pieces.clear()
            self._scene.words = ""
        self._pieces.append(rest)
        self._scene.words, self._scene.style = f"{self._scene.words}{rest}"[-_DRAWN:], style

    def _go_on(self, body: record_pb2.RecordBody) -> None:
        if body.HasField("plan"):
            self._scene.plan = list(body.plan.entries)
            if all(entry.status == "completed" for entry in self._scene.plan):
                self._end_plan()
        elif body.HasField("usage"):
            self._scene.usage = body.usage.usage
        elif tool := self._scene.tools.get(body.tool_update.tool_call_id):
            self._tool_goes_on(tool, body.tool_update)
        else:
            self.close()
            self._tool_update(body.tool_update)

    def _tool_call(self, call: record_pb2.ToolCall) -> None:
        tool = Tool(call.title, self._now, shown_by(call.content))
        if mark := ENDED.get(call.status):
            self._tool_ended(tool, mark)
        else:
            self._scene.tools[call.tool_call_id] = tool

    def _tool_goes_on(self, tool: Tool, update: record_pb2.ToolUpdate) -> None:
        tool.title = update.title or tool.title
        tool.shown = shown_by(update.content) or tool.shown
        if mark := ENDED.get(update.status):
            del self._scene.tools[update.tool_call_id]
            self.close()
            self._tool_ended(tool, mark)

    def _tool_ended(self, tool: Tool, mark: str) -> None:
        took = 0 if mark == _RUNS else self._now - tool.began
        told = f"{mark} {tool.title}"
        self._line(f"{told} · {lasting(took)}" if took >= 1 else told, "red" if mark == "✗" else "yellow")
        if tool.shown:
            self._line(indented(tool.shown), "yellow")

    def _ended(self, ended: record_pb2.TurnEnded) -> None:
        for tool in self._scene.tools.values():
            self._tool_ended(tool, "-")
        self._end_plan()
        super()._ended(ended)
        self._scene.clear()
        self._began = 0.0

    def _end_plan(self) -> None:
        if self._scene.plan:
            self.close()
            self._plan(record_pb2.Plan(entries=self._scene.plan))
        self._scene.plan = ()

    def _spent(self, ended: record_pb2.TurnEnded) -> Iterable[str]:
        usage = ended.usage if ended.HasField("usage") else self._scene.usage
        seconds = self._now - self._began if self._began else 0
        return filter(None, (lasting(seconds) if seconds >= 1 else "", tokens(usage)))
