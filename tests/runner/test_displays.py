"""What was said in terminals, as the transcript keeps it."""

from __future__ import annotations

from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.record_pb2 import RecordBody, ToolCall, ToolCallStatus, ToolContent, ToolUpdate

from services.runner.displays import Displays

COMPLETED = ToolCallStatus.TOOL_CALL_STATUS_COMPLETED
IN_PROGRESS = ToolCallStatus.TOOL_CALL_STATUS_IN_PROGRESS


def text(words: str) -> ToolContent:
    return ToolContent(block=ContentBlock(text=TextContent(text=words)))


def terminal(terminal_id: str) -> ToolContent:
    return ToolContent(terminal_id=terminal_id)


def filled(*updates: ToolUpdate | ToolCall) -> list[str]:
    """What the last update shows, once all have passed; terminal `a` said A, `silent` nothing."""
    displays = Displays({"a": "A", "b": "B"}.get)  # type: ignore[arg-type]
    bodies = [
        RecordBody(tool_call=each) if isinstance(each, ToolCall) else RecordBody(tool_update=each)
        for each in updates
    ]
    for body in bodies:
        displays.fill(body)
    last = bodies[-1]
    shown = last.tool_call.content if last.HasField("tool_call") else last.tool_update.content
    return [item.terminal_id or item.block.text.text for item in shown]


def update(*content: ToolContent, status: ToolCallStatus.ValueType = COMPLETED) -> ToolUpdate:
    return ToolUpdate(tool_call_id="t", content=content, status=status)


def test_a_call_that_ends_shows_what_was_said_in_its_terminals() -> None:
    begin = ToolCall(tool_call_id="t", content=[terminal("a")])
    assert filled(begin, update()) == ["a", "A"]
    assert filled(update(terminal("a"), terminal("b"), status=IN_PROGRESS), update()) == ["a", "b", "A", "B"]
    assert filled(ToolCall(tool_call_id="t", content=[terminal("a")], status=COMPLETED)) == ["a", "A"]
    assert filled(update(terminal("a"))) == ["a", "A"]
    assert filled(update(text("ran make"), terminal("a"))) == ["ran make", "a", "A"]


def test_what_the_agent_shows_instead_stays_as_it_is() -> None:
    before = update(terminal("a"), status=IN_PROGRESS)
    assert filled(before) == ["a"]
    assert filled(before, update(text("summary"))) == ["summary"]
    assert filled(before, update(text("summary"), status=IN_PROGRESS), update()) == []
    assert filled(update(terminal("silent"))) == ["silent"]
    assert filled(update()) == []
