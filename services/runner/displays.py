"""Terminals that tool calls show: clients of the protocol display them, here the transcript does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.record_pb2 import RecordBody, ToolCall, ToolCallStatus, ToolContent, ToolUpdate

_ENDED: Final = frozenset((ToolCallStatus.TOOL_CALL_STATUS_COMPLETED, ToolCallStatus.TOOL_CALL_STATUS_FAILED))


class Displays:
    """Of one turn. An agent that shows a terminal need not repeat what was said there."""

    def __init__(self, said: Callable[[str], str]) -> None:
        """`said` gives the last that a command said, by its terminal's id; empty for an unknown one."""
        self._said = said
        self._shown: dict[str, tuple[str, ...]] = {}

    def fill(self, body: RecordBody) -> None:
        """Where a tool call ends that shows terminals, add what was said there."""
        if body.HasField("tool_call"):
            self._fill(body.tool_call)
        elif body.HasField("tool_update"):
            self._fill(body.tool_update)

    def _fill(self, call: ToolCall | ToolUpdate) -> None:
        if call.content:
            # New content replaces what was shown before.
            shown = tuple(item.terminal_id for item in call.content if item.terminal_id)
            self._shown[call.tool_call_id] = shown
        if call.status in _ENDED:
            terminals = self._shown.pop(call.tool_call_id, ())
            if not call.content:
                call.content.extend(ToolContent(terminal_id=each) for each in terminals)
            call.content.extend(_text(said) for each in terminals if (said := self._said(each)))


def _text(text: str) -> ToolContent:
    return ToolContent(block=ContentBlock(text=TextContent(text=text)))
