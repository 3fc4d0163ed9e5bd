"""Updates to records, and content in both directions."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from acp import schema
from google.protobuf.json_format import MessageToDict
from moorage.common.v1.content_pb2 import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from moorage.common.v1.record_pb2 import RecordBody

from services.runner.acp.content import acp_blocks, proto_block
from services.runner.acp.errors import UnsupportedContent
from services.runner.acp.messages import PromptResult, SessionUpdate
from services.runner.acp.records import to_body, token_usage

ALL = schema.AgentCapabilities.model_validate(
    {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}
)
NOTHING = schema.AgentCapabilities()
TEXT = {"type": "text", "text": "hi"}
DATA = base64.b64encode(b"data").decode()


def body_of(**update: Any) -> RecordBody | None:
    return to_body(SessionUpdate({"sessionId": "s", "update": update}, replayed=False, in_prompt=True))


def record_of(**update: Any) -> dict[str, Any]:
    body = body_of(**update)
    assert body is not None
    return MessageToDict(body, preserving_proto_field_name=True)


def test_text_and_thoughts() -> None:
    assert record_of(sessionUpdate="agent_message_chunk", content=TEXT, messageId="m") == {
        "agent_message": {"message_id": "m", "content": {"text": {"text": "hi"}}}
    }
    assert record_of(sessionUpdate="agent_thought_chunk", content=TEXT) == {
        "thought": {"content": {"text": {"text": "hi"}}}
    }


def test_what_the_agent_tells_of_itself() -> None:
    assert record_of(sessionUpdate="current_mode_update", currentModeId="plan") == {
        "agent_mode": {"mode_id": "plan"}
    }
    assert record_of(sessionUpdate="session_info_update", title="A talk") == {
        "agent_session_info": {"title": "A talk"}
    }
    commands = [{"name": "find", "description": "Finds", "input": {"hint": "what"}}]
    assert record_of(sessionUpdate="available_commands_update", availableCommands=commands) == {
        "agent_commands": {"commands": [{"name": "find", "description": "Finds", "input_hint": "what"}]}
    }
    option = {"id": "m", "name": "M", "type": "select", "currentValue": "a", "category": "model"}
    options = [{**option, "options": [{"value": "a", "name": "A"}]}]
    assert record_of(sessionUpdate="config_option_update", configOptions=options)["agent_options"] == {
        "options": [
            {
                "option_id": "m",
                "name": "M",
                "category": "model",
                "value": "a",
                "choices": [{"id": "a", "name": "A"}],
            }
        ]
    }


def test_what_says_nothing_new_is_no_record() -> None:
    assert body_of(sessionUpdate="user_message_chunk", content=TEXT) is None
    assert body_of(sessionUpdate="agent_message_chunk", content={"type": "text", "text": ""}) is None


def test_tool_calls_whole() -> None:
    content = [
        {"type": "content", "content": TEXT},
        {"type": "diff", "path": "/a", "oldText": "x", "newText": "y"},
        {"type": "diff", "path": "/b", "newText": ""},
        {"type": "terminal", "terminalId": "t1"},
    ]
    record = record_of(
        sessionUpdate="tool_call",
        toolCallId="c1",
        title="Edit",
        kind="edit",
        status="in_progress",
        content=content,
        locations=[{"path": "/a", "line": 7}, {"path": "/b"}],
        rawInput={"ü": [1, None]},
        rawOutput="out",
    )
    assert record == {
        "tool_call": {
            "tool_call_id": "c1",
            "title": "Edit",
            "kind": "edit",
            "status": "TOOL_CALL_STATUS_IN_PROGRESS",
            "content": [
                {"block": {"text": {"text": "hi"}}},
                {"diff": {"path": "/a", "old_text": "x", "new_text": "y"}},
                {"diff": {"path": "/b"}},
                {"terminal_id": "t1"},
            ],
            "locations": [{"path": "/a", "line": 7}, {"path": "/b"}],
            "raw_input": '{"ü":[1,null]}',
            "raw_output": '"out"',
        }
    }


def test_tool_updates_tell_only_what_changed() -> None:
    body = body_of(sessionUpdate="tool_call_update", toolCallId="c1", status="failed")
    assert body is not None
    update = body.tool_update
    assert MessageToDict(update) == {"toolCallId": "c1", "status": "TOOL_CALL_STATUS_FAILED"}
    assert not update.HasField("title")
    titled = record_of(sessionUpdate="tool_call_update", toolCallId="c1", title="", kind="read")
    assert titled == {"tool_update": {"tool_call_id": "c1", "title": "", "kind": "read"}}


def test_plans_and_usage() -> None:
    entries = [{"content": "step", "priority": "high", "status": "pending"}]
    assert record_of(sessionUpdate="plan", entries=entries) == {"plan": {"entries": entries}}
    cost = {"amount": 0.0000001, "currency": "EUR"}
    assert record_of(sessionUpdate="usage_update", used=5, size=10, cost=cost) == {
        "usage": {
            "usage": {"context_used": "5", "context_size": "10", "cost": "0.0000001", "currency": "EUR"}
        }
    }


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "telepathy", "x": "ü"},
        {"sessionUpdate": "current_mode_update", "currentModeId": ["plan"]},
        {"sessionUpdate": "config_option_update", "configOptions": [{"id": "a", "type": "slider"}]},
        {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "x"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "!", "mimeType": "x"}},
        {"sessionUpdate": "usage_update", "used": 2**70, "size": 1},
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "t",
            "locations": [{"path": "/", "line": 2**40}],
        },
        {},
    ],
)
def test_what_has_no_type_is_kept_as_it_came(update: dict[str, Any]) -> None:
    body = body_of(**update)
    assert body is not None
    assert body.raw_json.method == "session/update"
    assert json.loads(body.raw_json.json) == {"sessionId": "s", "update": update}


BLOCKS = [
    (ContentBlock(text=TextContent(text="hi")), TEXT),
    (
        ContentBlock(image=ImageContent(mime_type="image/png", data=b"data")),
        {"type": "image", "mimeType": "image/png", "data": DATA},
    ),
    (
        ContentBlock(audio=AudioContent(mime_type="audio/wav", data=b"data")),
        {"type": "audio", "mimeType": "audio/wav", "data": DATA},
    ),
    (
        ContentBlock(resource_link=ResourceLink(uri="file:///a/b.py", name="b", mime_type="text/x")),
        {"type": "resource_link", "uri": "file:///a/b.py", "name": "b", "mimeType": "text/x"},
    ),
    (
        ContentBlock(resource=EmbeddedResource(uri="file:///a", text="t")),
        {"type": "resource", "resource": {"uri": "file:///a", "text": "t"}},
    ),
    (
        ContentBlock(resource=EmbeddedResource(uri="file:///a", mime_type="x/y", blob=b"data")),
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "x/y", "blob": DATA}},
    ),
]


@pytest.mark.parametrize(("block", "expected"), BLOCKS)
def test_a_block_in_both_directions(block: ContentBlock, expected: dict[str, Any]) -> None:
    assert acp_blocks([block], ALL) == [expected]
    (parsed,) = schema.PromptRequest.model_validate({"sessionId": "s", "prompt": [expected]}).prompt
    assert proto_block(parsed) == block


def test_a_link_without_a_name_takes_its_last_part() -> None:
    links = [
        ContentBlock(resource_link=ResourceLink(uri=uri)) for uri in ("file:///a/b.py", "file:///a/", "x:")
    ]
    assert [block["name"] for block in acp_blocks(links, NOTHING)] == ["b.py", "a", "x:"]


@pytest.mark.parametrize("kind", ["image", "audio", "resource"])
def test_what_the_agent_does_not_take_is_named(kind: str) -> None:
    prompt = [BLOCKS[0][0], next(block for block, _ in BLOCKS if block.WhichOneof("block") == kind)]
    with pytest.raises(UnsupportedContent, match=rf"prompt\[1\].*{kind}"):
        acp_blocks(prompt, NOTHING)


def test_an_empty_block_is_named() -> None:
    with pytest.raises(UnsupportedContent, match=r"prompt\[0\]"):
        acp_blocks([ContentBlock()], ALL)


def test_the_usage_of_a_prompt() -> None:
    told = {"totalTokens": 9, "inputTokens": 4, "outputTokens": 5, "cachedReadTokens": 2, "thoughtTokens": 1}
    usage = token_usage(PromptResult.of({"stopReason": "end_turn", "usage": told}))
    assert usage
    assert MessageToDict(usage) == {
        "inputTokens": "4",
        "outputTokens": "5",
        "cachedTokens": "2",
        "reasoningTokens": "1",
    }
    for nothing in (None, {"totalTokens": -1}, told | {"inputTokens": 2**70}, "many"):
        assert token_usage(PromptResult.of({"stopReason": "end_turn", "usage": nothing})) is None
