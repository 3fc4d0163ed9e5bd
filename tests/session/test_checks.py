"""What clients may ask for: the limits, and the fields that refusals name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import content_pb2, provision_pb2, record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.session import checks
from services.session.agents import check_agent
from services.session.limits import check_limits
from services.session.sessions import ApprovalPolicy
from services.session.wishes import check_wish

Block = content_pb2.ContentBlock


# A megabyte in a field that this version does not know.
NEWER: Final = b"\xfa\x07\x80\x80\x40" + b"x" * 2**20
KNOWN: Final = Block(text=content_pb2.TextContent(text="known"))


def text(value: str) -> Block:
    return Block(text=content_pb2.TextContent(text=value))


def called(headers: dict[str, str]) -> session_pb2.AgentSpec:
    """An agent with a server that is called."""
    http = session_pb2.McpHttp(url="http://127.0.0.1:1/", headers=headers)
    return session_pb2.AgentSpec(mcp_servers=[session_pb2.McpServer(name="far", http=http)])


REFUSED: list[tuple[str, str, Callable[[], object]]] = [
    ("no block", "prompt", lambda: checks.check_prompt("prompt", [])),
    ("a block without content", "prompt[1]", lambda: checks.check_prompt("prompt", [text("a"), Block()])),
    ("an empty text", "prompt[0].text.text", lambda: checks.check_prompt("prompt", [text(" \n")])),
    ("one byte too many", "prompt", lambda: checks.check_prompt("prompt", [text("a" * 262145)])),
    ("too many bytes, few characters", "prompt", lambda: checks.check_prompt("prompt", [text("€" * 90000)])),
    ("too many blocks", "prompt", lambda: checks.check_prompt("prompt", [text("a")] * 1001)),
    (
        "too much in all",
        "prompt",
        lambda: checks.check_prompt("prompt", [text("a" * 200_000), text("b" * 100_000)]),
    ),
    (
        "an image without a type",
        "prompt[0].image.mime_type",
        lambda: checks.check_prompt("prompt", [Block(image=content_pb2.ImageContent(data=b"x"))]),
    ),
    (
        "a sound without data",
        "prompt[0].audio.data",
        lambda: checks.check_prompt("prompt", [Block(audio=content_pb2.AudioContent(mime_type="audio/wav"))]),
    ),
    (
        "a link to nothing",
        "prompt[0].resource_link.uri",
        lambda: checks.check_prompt("prompt", [Block(resource_link=content_pb2.ResourceLink(name="x"))]),
    ),
    (
        "a resource without content",
        "prompt[0].resource",
        lambda: checks.check_prompt(
            "prompt", [Block(resource=content_pb2.EmbeddedResource(uri="file:///x"))]
        ),
    ),
    ("too many labels", "labels", lambda: checks.check_labels("labels", {f"l{n}": "" for n in range(65)})),
    ("an empty label key", "labels", lambda: checks.check_labels("labels", {"": "x"})),
    ("a long label key", "labels", lambda: checks.check_labels("labels", {"k" * 64: "x"})),
    ("a long label value", "labels.k", lambda: checks.check_labels("labels", {"k": "v" * 256})),
    ("a label with U+0000", "labels.k", lambda: checks.check_labels("labels", {"k": "a\0"})),
    (
        "a variable without a usable name",
        "agent.environment",
        lambda: checks.check_environment("agent.environment", {"A=B": "x"}),
    ),
    (
        "a variable with U+0000",
        "agent.environment.A",
        lambda: checks.check_environment("agent.environment", {"A": "\0"}),
    ),
    (
        "too large an environment",
        "agent.environment",
        lambda: checks.check_environment("agent.environment", {"A": "x" * 32768}),
    ),
    (
        "a policy that does not exist",
        "approval_policy",
        lambda: checks.check_approval_policy("approval_policy", turn_pb2.ApprovalPolicy.ValueType(99)),
    ),
    (
        "a negative duration",
        "limits.max_duration",
        lambda: check_limits("limits", turn_pb2.Limits(max_duration=Duration(seconds=-1))),
    ),
    (
        "an invalid duration",
        "limits.max_silence",
        lambda: check_limits("limits", turn_pb2.Limits(max_silence=Duration(seconds=1, nanos=-1))),
    ),
    (
        "a duration beyond all bounds",
        "limits.max_duration",
        lambda: check_limits("limits", turn_pb2.Limits(max_duration=Duration(seconds=10**11))),
    ),
    (
        "negative tool calls",
        "limits.max_tool_calls",
        lambda: check_limits("limits", turn_pb2.Limits(max_tool_calls=-1)),
    ),
    ("a profile that is no name", "agent.profile", lambda: checks.check_name("agent.profile", "a b")),
    (
        "a header that is given twice, in another case",
        "agent.mcp_servers[0].http.headers.ACCEPT",
        lambda: check_agent("agent", called({"Accept": "a", "ACCEPT": "b"}), "demo"),
    ),
]


@pytest.mark.parametrize(("field", "check"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refusal_names_the_field(field: str, check: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check()
    assert [violation.field for violation in refusal.value.violations] == [field]


def test_the_largest_prompt_is_stored_whole() -> None:
    stored = checks.check_prompt("prompt", [text("a" * checks.MAX_PROMPT)])
    assert record_pb2.UserMessage.FromString(stored).content[0].text.text == "a" * checks.MAX_PROMPT


def test_what_no_check_has_seen_is_not_stored() -> None:
    prompt = checks.check_prompt("prompt", [Block.FromString(NEWER + KNOWN.SerializeToString())])
    assert prompt == record_pb2.UserMessage(content=[KNOWN]).SerializeToString()
    assert check_limits("limits", turn_pb2.Limits.FromString(NEWER)) == b""
    agent = session_pb2.AgentSpec.FromString(NEWER)
    wish = check_wish("default", session_pb2.CreateSessionRequest(agent=agent), "demo")
    assert wish.agent == session_pb2.AgentSpec(profile="demo").SerializeToString()


def test_a_workspace_is_asked_for_as_the_client_did() -> None:
    spec = provision_pb2.ProvisionSpec(
        provider="docker",
        image="busybox",
        network=provision_pb2.NETWORK_POLICY_BRIDGE,
        limits=provision_pb2.ResourceLimits(cpus=0.5, memory_bytes=1 << 20, pids=10),
        source=provision_pb2.WorkspaceSource(git=provision_pb2.GitSource(url="https://a/b", ref="main")),
        setup=provision_pb2.SetupCommand(command=["make"], timeout=Duration(seconds=9)),
        ttl=Duration(seconds=60),
        idle_ttl=Duration(seconds=30),
    )
    newer = provision_pb2.ProvisionSpec.FromString(NEWER + spec.SerializeToString())
    wish = check_wish("default", session_pb2.CreateSessionRequest(session_id="s1", provision=newer), "demo")
    asked = wish.provisioning("ws1")
    assert (asked.project, asked.session_id, asked.workspace_id) == ("default", "s1", "ws1")
    assert asked.provision.SerializeToString() == spec.SerializeToString()
    assert wish.network == provision_pb2.NETWORK_POLICY_BRIDGE


def test_the_largest_labels_are_taken() -> None:
    labels = {f"{n:063}": "ü" * 255 for n in range(64)}
    assert checks.check_labels("labels", labels) == labels


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (turn_pb2.APPROVAL_POLICY_UNSPECIFIED, ApprovalPolicy.ASK),
        (turn_pb2.APPROVAL_POLICY_ASK, ApprovalPolicy.ASK),
        (turn_pb2.APPROVAL_POLICY_DENY, ApprovalPolicy.DENY),
        (turn_pb2.APPROVAL_POLICY_ALLOW, ApprovalPolicy.ALLOW),
    ],
)
def test_questions_are_put_to_users_unless_a_policy_answers_them(
    asked: turn_pb2.ApprovalPolicy.ValueType, stored: ApprovalPolicy
) -> None:
    assert checks.check_approval_policy("approval_policy", asked) is stored
