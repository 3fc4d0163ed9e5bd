"""What an agent tells, as records of the contract. What has no type is kept as it came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from moorage.common.v1.record_pb2 import (
    AgentChoice,
    AgentCommand,
    AgentCommands,
    AgentMessage,
    AgentMode,
    AgentOption,
    AgentOptions,
    AgentSessionInfo,
    FileDiff,
    Plan,
    PlanEntry,
    RawJson,
    RecordBody,
    Thought,
    ToolCall,
    ToolCallStatus,
    ToolContent,
    ToolLocation,
    ToolUpdate,
    Usage,
)
from moorage.common.v1.turn_pb2 import TokenUsage

from services.runner.acp.content import proto_block
from services.runner.acp.library import CLIENT_METHODS, schema
from services.runner.acp.messages import PermissionRequest, PromptResult, SessionUpdate
from services.runner.acp.offers import Choice, Option, options_of

_OPTIONS: Final = "config_option_update"

_STATUS: Final[dict[str | None, ToolCallStatus.ValueType]] = {
    None: ToolCallStatus.TOOL_CALL_STATUS_UNSPECIFIED,
    "pending": ToolCallStatus.TOOL_CALL_STATUS_PENDING,
    "in_progress": ToolCallStatus.TOOL_CALL_STATUS_IN_PROGRESS,
    "completed": ToolCallStatus.TOOL_CALL_STATUS_COMPLETED,
    "failed": ToolCallStatus.TOOL_CALL_STATUS_FAILED,
}


def to_body(update: SessionUpdate) -> RecordBody | None:
    """The update's record; None for the user's own words and for empty text."""
    try:
        if update.kind == _OPTIONS and (options := _options_told(update)):
            return RecordBody(agent_options=AgentOptions(options=agent_options(options)))
        return _typed(update.model) if update.model is not None else raw_json(update)
    except ValueError:
        # Without a type, or it fits the schema and still holds what the contract's types cannot.
        return raw_json(update)


def raw_json(update: SessionUpdate) -> RecordBody:
    """The update as it came."""
    return RecordBody(raw_json=RawJson(method=CLIENT_METHODS["session_update"], json=update.raw_json))


def asked_tool(request: PermissionRequest) -> RecordBody:
    """What the agent tells of a tool call while it asks whether it may run."""
    return RecordBody(tool_update=_tool_update(request.tool_call))


def agent_options(options: Sequence[Option]) -> list[AgentOption]:
    """Options as records have them."""
    return [
        AgentOption(
            option_id=option.id,
            name=option.name,
            description=option.description,
            category=option.category,
            value=option.value,
            choices=agent_choices(option.choices),
        )
        for option in options
    ]


def agent_choices(choices: Sequence[Choice]) -> list[AgentChoice]:
    """Choices as records have them."""
    return [AgentChoice(id=choice.id, name=choice.name, description=choice.description) for choice in choices]


def token_usage(result: PromptResult) -> TokenUsage | None:
    """What the prompt consumed, if the agent tells."""
    told = result.usage
    if told is None:
        return None
    try:
        return TokenUsage(
            input_tokens=told.input_tokens,
            output_tokens=told.output_tokens,
            cached_tokens=told.cached_read_tokens or 0,
            reasoning_tokens=told.thought_tokens or 0,
        )
    except ValueError:
        # Numbers beyond 64 bits tell nothing.
        return None


def _options_told(update: SessionUpdate) -> tuple[Option, ...]:
    told = update.raw.get("update")
    return options_of(told.get("configOptions")) if isinstance(told, dict) else ()


def _typed(model: Any) -> RecordBody | None:
    match model:
        case schema.UserMessageChunk():
            return None
        case schema.AgentMessageChunk() | schema.AgentThoughtChunk():
            return _message(model)
        case schema.ToolCallStart():
            return RecordBody(tool_call=_tool_call(model))
        case schema.ToolCallProgress():
            return RecordBody(tool_update=_tool_update(model))
        case schema.AgentPlanUpdate():
            return RecordBody(plan=_plan(model))
    return _told(model)


def _told(model: Any) -> RecordBody:
    """What the agent tells of itself."""
    match model:
        case schema.UsageUpdate():
            return RecordBody(usage=Usage(usage=_context_usage(model)))
        case schema.AvailableCommandsUpdate():
            return RecordBody(agent_commands=_commands(model))
        case schema.CurrentModeUpdate():
            return RecordBody(agent_mode=AgentMode(mode_id=model.current_mode_id))
        case schema.SessionInfoUpdate():
            info = AgentSessionInfo(title=model.title, update_time=model.updated_at)
            return RecordBody(agent_session_info=info)
    raise ValueError(f"no type for {type(model).__name__}")


def _message(chunk: schema.AgentMessageChunk | schema.AgentThoughtChunk) -> RecordBody | None:
    content = proto_block(chunk.content)
    if content.WhichOneof("block") == "text" and not content.text.text:
        return None
    message_id = chunk.message_id or ""
    if isinstance(chunk, schema.AgentThoughtChunk):
        return RecordBody(thought=Thought(message_id=message_id, content=content))
    return RecordBody(agent_message=AgentMessage(message_id=message_id, content=content))


def _tool_call(call: schema.ToolCallStart) -> ToolCall:
    return ToolCall(
        tool_call_id=call.tool_call_id,
        title=call.title,
        kind=call.kind or "",
        status=_STATUS[call.status],
        content=_tool_content(call.content),
        locations=_locations(call.locations),
        raw_input=_json(call.raw_input),
        raw_output=_json(call.raw_output),
    )


def _tool_update(update: schema.ToolCallProgress | schema.ToolCallUpdate) -> ToolUpdate:
    return ToolUpdate(
        tool_call_id=update.tool_call_id,
        title=update.title,
        kind=update.kind,
        status=_STATUS[update.status],
        content=_tool_content(update.content),
        locations=_locations(update.locations),
        raw_input=_json(update.raw_input),
        raw_output=_json(update.raw_output),
    )


def _tool_content(items: Sequence[Any] | None) -> list[ToolContent]:
    return [_tool_content_item(item) for item in items or ()]


def _tool_content_item(item: Any) -> ToolContent:
    match item:
        case schema.FileEditToolCallContent():
            return ToolContent(diff=FileDiff(path=item.path, old_text=item.old_text, new_text=item.new_text))
        case schema.TerminalToolCallContent():
            return ToolContent(terminal_id=item.terminal_id)
    return ToolContent(block=proto_block(item.content))


def _locations(locations: Sequence[schema.ToolCallLocation] | None) -> list[ToolLocation]:
    return [ToolLocation(path=location.path, line=location.line) for location in locations or ()]


def _plan(update: schema.AgentPlanUpdate) -> Plan:
    return Plan(
        entries=[
            PlanEntry(content=entry.content, priority=entry.priority, status=entry.status)
            for entry in update.entries
        ]
    )


def _commands(update: schema.AvailableCommandsUpdate) -> AgentCommands:
    return AgentCommands(
        commands=[
            AgentCommand(
                name=command.name,
                description=command.description,
                input_hint=getattr(command.input.root, "hint", "") if command.input else "",
            )
            for command in update.available_commands
        ]
    )


def _context_usage(update: schema.UsageUpdate) -> TokenUsage:
    usage = TokenUsage(context_used=update.used, context_size=update.size)
    if update.cost:
        usage.cost = format(Decimal(repr(update.cost.amount)), "f")
        usage.currency = update.cost.currency
    return usage


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
