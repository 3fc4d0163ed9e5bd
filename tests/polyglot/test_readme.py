"""A stranger follows the README with grpcurl and with buf: reflection only, no contract at hand."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from google.rpc import error_details_pb2
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from tests.polyglot.readme import Call, at, commands
from tests.polyglot.tools import BUF, MessageT, messages, run

pytestmark = pytest.mark.timeout(120)

Ran = subprocess.CompletedProcess[str]
Invoke = Callable[[str], Ran]
SESSION_SERVICE = "moorage.session.v1.SessionService"


@pytest.fixture
def grpcurl(addresses: Mapping[str, str], empty: Path) -> Invoke:
    """Runs a command of the README as it stands, at the test's address."""
    if shutil.which("grpcurl") is None:
        pytest.skip("grpcurl is not on PATH")
    return lambda command: run(["sh", "-c", at(command, addresses["session"])], empty)


@pytest.fixture
def buf(addresses: Mapping[str, str], empty: Path) -> Invoke:
    """Makes the call of a command of the README with buf, in a project of its own."""

    def invoke(command: str) -> Ran:
        call = Call.of(command)
        base = f"http://{addresses['session']}"
        target = (
            ["--list-methods", base] if call.method in ("list", "describe") else [f"{base}/{call.method}"]
        )
        data = ["-d", call.data] if call.data else []
        header = ["-H", "moorage-project: buf"]
        return run(
            [str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge", *header, *data, *target],
            empty,
        )

    return invoke


def test_every_checked_block_is_known() -> None:
    assert set(commands()) == {"list", "create", "run", "records", "missing"}


def test_with_grpcurl(grpcurl: Invoke) -> None:
    listed, described = map(grpcurl, commands()["list"])
    assert SESSION_SERVICE in listed.stdout.split()
    assert "RunTurnRequest" in described.stdout
    assert "returns ( stream .moorage.session.v1.RunTurnResponse )" in described.stdout
    check_conversation(grpcurl)
    missing = grpcurl(commands()["missing"][0])
    assert missing.returncode != 0
    assert "Code: NotFound" in missing.stderr
    _, _, details = missing.stderr.partition("Details:")
    info = json.loads(details[details.index("{") :])
    assert info.pop("@type") == "type.googleapis.com/google.rpc.ErrorInfo"
    assert info == {
        "reason": "SESSION_NOT_FOUND",
        "domain": "moorage",
        "metadata": {"session_id": "nowhere", "project": "default"},
    }


def test_with_buf(buf: Invoke) -> None:
    for listed in map(buf, commands()["list"]):
        assert f"{SESSION_SERVICE}/RunTurn" in listed.stdout.split()
    check_conversation(buf)
    missing = buf(commands()["missing"][0])
    assert missing.returncode != 0
    error = json.loads(missing.stderr)
    assert error["code"] == "not_found"
    [detail] = error["details"]
    assert detail["type"] == "google.rpc.ErrorInfo"
    info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(detail["value"] + "=="))
    assert (info.reason, info.domain) == ("SESSION_NOT_FOUND", "moorage")
    assert dict(info.metadata) == {"session_id": "nowhere", "project": "buf"}


def check_conversation(invoke: Invoke) -> None:
    """Create, run, read back; a repeated run attaches to the same turn."""
    created = one(invoke, "create", session_pb2.CreateSessionResponse)
    assert created.session.session_id == "readme"
    events = answers(invoke, "run", session_pb2.RunTurnResponse)
    first, *between, last = events
    assert first.admitted.turn_id
    assert last.ended.turn_id == first.admitted.turn_id
    assert last.ended.state == turn_pb2.TURN_STATE_COMPLETED
    records = [event.record for event in between]
    said = "".join(record.body.agent_message.content.text.text for record in records)
    assert said.startswith("hello from the README")
    assert any(record.body.HasField("tool_call") for record in records)
    stored = one(invoke, "records", session_pb2.ListRecordsResponse)
    assert list(stored.records) == records
    assert [record.seq for record in records] == list(range(1, stored.head_seq + 1))
    again = answers(invoke, "run", session_pb2.RunTurnResponse)
    assert [event.record for event in again[1:-1]] == records
    assert again[-1].ended == last.ended


def one(invoke: Invoke, name: str, kind: type[MessageT]) -> MessageT:
    [answer] = answers(invoke, name, kind)
    return answer


def answers(invoke: Invoke, name: str, kind: type[MessageT]) -> list[MessageT]:
    """What the README's command of this name is answered with."""
    [command] = commands()[name]
    ran = invoke(command)
    assert (ran.returncode, ran.stderr) == (0, "")
    return messages(ran.stdout, kind)
