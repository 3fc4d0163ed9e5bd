"""One trace from a client to the agent, over four processes that export to a receiver."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import content_pb2, turn_pb2
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.channels import open_channel
from tests.cli.programs import Place, up
from tests.conditions import eventually
from tests.otlp import Receiver, receiving

pytestmark = pytest.mark.timeout(180)

SESSION = "moorage.session.v1.SessionService"
JOURNAL = "moorage.session.v1.JournalService"
RUNNER = "moorage.runner.v1.RunnerService"
WORKSPACE = "moorage.workspace.v1.WorkspaceService"
OWNER = "moorage.owner.v1.LeaseService"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory to serve."""
    place = Place.below(tmp_path)
    yield place
    place.clean()


class Trace:
    """A client's span of its own making."""

    def __init__(self) -> None:
        self.trace_id = secrets.token_bytes(16)
        self.span_id = secrets.token_bytes(8)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the client sends."""
        return (("traceparent", f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"),)

    def spans(self, receiver: Receiver) -> dict[str, list[Any]]:
        """The spans of this trace by service."""
        found = receiver.by_service().items()
        return {name: [span for span in spans if span.trace_id == self.trace_id] for name, spans in found}


def one(spans: list[Any], name: str, kind: int) -> Any:
    """The first span of this name and kind (2 server, 3 client, 1 internal)."""
    found = [span for span in spans if span.name == name and span.kind == kind]
    assert found, f"no {name} among {sorted({span.name for span in spans})}"
    return found[0]


async def test_a_turn_and_its_stop_are_one_trace_each(place: Place) -> None:
    turn, stop = Trace(), Trace()
    async with receiving() as receiver:
        with up(place, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_BSP_SCHEDULE_DELAY="200") as (
            _,
            where,
        ):
            async with open_channel(where["session"]) as channel:
                told = await carry_out(SessionServiceStub(channel), turn, stop)
                await eventually(
                    lambda: complete(turn.spans(receiver)), within=30, what="all spans of the turn"
                )
    assert turn.trace_id.hex() in told
    check_turn(turn, turn.spans(receiver))
    check_stop(stop, stop.spans(receiver))


async def carry_out(sessions: Any, turn: Trace, stop: Trace) -> str:
    """A turn that says what trace its agent is in, stopped under a trace of its own."""
    request = session_pb2.CreateSessionRequest(
        session_id="s", approval_policy=turn_pb2.APPROVAL_POLICY_ALLOW, wait_ready=True
    )
    await sessions.CreateSession(request)
    text = content_pb2.TextContent(text="who are you\ncount to 100000 every 0.05")
    run = session_pb2.RunTurnRequest(
        session_id="s", turn_id="t", prompt=[content_pb2.ContentBlock(text=text)]
    )
    told = ""
    stopped = False
    async for event in sessions.RunTurn(run, metadata=turn.metadata):
        told += event.record.body.agent_message.content.text.text
        if "\n3\n" in told and not stopped:
            stopped = True
            order = session_pb2.StopTurnRequest(session_id="s", expected_turn_id="t")
            await sessions.StopTurn(order, metadata=stop.metadata)
    # The agent stays warm, and its Exec is a span that lasts as long.
    await sessions.CloseSession(session_pb2.CloseSessionRequest(session_id="s", wait=True))
    return told


def complete(spans: dict[str, list[Any]]) -> bool:
    """Whether the spans that end last have come."""
    last = {"moorage-session": f"{SESSION}/RunTurn", "moorage-runner": f"{WORKSPACE}/Exec"}
    last["moorage-workspace"] = last["moorage-runner"]
    return all(any(span.name == name for span in spans.get(service, ())) for service, name in last.items())


def check_turn(turn: Trace, spans: dict[str, list[Any]]) -> None:
    """Who called whom, from the client's call to the agent's process."""
    session, runner = spans["moorage-session"], spans["moorage-runner"]
    entry = one(session, f"{SESSION}/RunTurn", 2)
    assert entry.parent_span_id == turn.span_id
    offered = one(session, f"{RUNNER}/DispatchTurn", 3)
    taken = one(runner, f"{RUNNER}/DispatchTurn", 2)
    assert taken.parent_span_id == offered.span_id
    driven = one(runner, "turn", 1)
    for service, name in (
        ("moorage-owner", f"{OWNER}/AcquireLease"),
        ("moorage-session", f"{JOURNAL}/BeginTurn"),
        ("moorage-workspace", f"{WORKSPACE}/ClaimWorkspace"),
        ("moorage-workspace", f"{WORKSPACE}/Exec"),
        ("moorage-session", f"{JOURNAL}/FinishTurn"),
    ):
        called = one(runner, name, 3)
        assert one(spans[service], name, 2).parent_span_id == called.span_id
        if not name.endswith("AcquireLease"):
            assert called.parent_span_id == driven.span_id


def check_stop(stop: Trace, spans: dict[str, list[Any]]) -> None:
    """The order's own trace leads to the runner that carried it out."""
    session, runner = spans["moorage-session"], spans["moorage-runner"]
    assert one(session, f"{SESSION}/StopTurn", 2).parent_span_id == stop.span_id
    delivered = one(session, f"{RUNNER}/DeliverStop", 3)
    assert one(runner, f"{RUNNER}/DeliverStop", 2).parent_span_id == delivered.span_id
