"""Secrets: named by sessions, known to the agent and its servers, and to nobody else (T5)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.common.status import from_rpc_error
from services.runner.endings import TurnFailed
from services.runner.secrets import Secrets
from tests.databases import fetch, fetch_value
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks

VALUE = "do-not-tell-1b8f2e"
STDIO = session_pb2.McpServer(
    name="files", stdio=session_pb2.McpStdio(command="files", secret_refs={"KEY": "key.2"})
)
HTTP = session_pb2.McpServer(
    name="far", http=session_pb2.McpHttp(url="http://127.0.0.1:1/", secret_refs={"Authorization": "token"})
)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory of secrets: two of the project `default`, one of another."""
    for name, value in (
        ("default/token", f"{VALUE}\n"),
        ("default/key.2", f"{VALUE}2"),
        ("other/far", "far"),
    ):
        path = tmp_path / "secrets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
    return tmp_path / "secrets"


@pytest.fixture
async def profile(stack: Stack, tmp_path: Path, secrets: Path) -> str:
    """Of an agent that keeps what it is told to itself."""
    name = write_rogue(tmp_path / "profiles", "keeps_secrets")
    await stack.add_runner(profiles_directory=tmp_path / "profiles", secrets_directory=secrets)
    return name


async def create(talks: Talks, profile: str, **fields: object) -> None:
    agent = session_pb2.AgentSpec(profile=profile, **fields)  # type: ignore[arg-type]
    await talks.stub.CreateSession(session_pb2.CreateSessionRequest(session_id="s", agent=agent))


async def test_an_agent_and_its_servers_get_them_and_nothing_stores_or_tells_them(
    stack: Stack, talks: Talks, profile: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await create(talks, profile, secret_refs={"TOKEN": "token"}, mcp_servers=[STDIO, HTTP])
    assert (await talks.run("s", "t", "go")).state == turn_pb2.TURN_STATE_COMPLETED
    known = json.loads((root / "known.json").read_text())
    assert known["token"] == VALUE
    assert known["mcp_servers"][0]["env"] == [{"name": "KEY", "value": f"{VALUE}2"}]
    assert known["mcp_servers"][1]["headers"] == [{"name": "Authorization", "value": VALUE}]
    session = await talks.session("s")
    assert dict(session.agent.secret_refs) == {"TOKEN": "token"}
    assert await rows_with(stack.database_url, VALUE) == []
    # What the search finds if it is there.
    assert "session.sessions" in await rows_with(stack.database_url, "TOKEN")
    assert VALUE not in "".join(str(vars(record)) for record in caplog.records)
    assert "turn ended" in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("name", ["nothing", "far"])
async def test_one_that_the_project_does_not_have_fails_the_turn_by_its_name(
    talks: Talks, profile: str, root: Path, name: str
) -> None:
    await create(talks, profile, secret_refs={"TOKEN": name})
    turn = await talks.run("s", "t", "go")
    assert (turn.state, turn.end_reason) == (
        turn_pb2.TURN_STATE_FAILED,
        turn_pb2.END_REASON_AGENT_START_FAILED,
    )
    assert (turn.error.code, turn.error.metadata["secret"]) == ("SECRET_UNKNOWN", name)
    assert not turn.prompt_sent
    assert f"the secret {name} is not known" in turn.error.message
    assert not (root / "known.json").exists()


async def test_a_terminal_of_the_client_has_no_secrets(
    stack: Stack, talks: Talks, secrets: Path, root: Path
) -> None:
    await stack.add_runner(secrets_directory=secrets)
    agent = session_pb2.AgentSpec(profile="demo", secret_refs={"TOKEN": "token"})
    request = session_pb2.CreateSessionRequest(
        session_id="s", agent=agent, approval_policy=turn_pb2.APPROVAL_POLICY_ALLOW
    )
    await talks.stub.CreateSession(request)
    command = 'test -n "$TOKEN" && touch {0}-has || touch {0}-has-not'
    await talks.run("s", "t", f"run {command.format('agent')}\nterminal {command.format('client')}")
    assert {path.name for path in root.glob("*-has*")} == {"agent-has", "client-has-not"}


async def test_bad_references_are_refused_without_repeating_them(talks: Talks, profile: str) -> None:
    http = session_pb2.McpHttp(url="http://127.0.0.1:1/", headers={"A": "b"}, secret_refs={"a": "token"})
    twice = session_pb2.McpHttp(url="http://127.0.0.1:1/", secret_refs={"KEY": "token", "key": "token"})
    for fields, field in (
        ({"secret_refs": {"1": "token"}}, "agent.secret_refs"),
        ({"secret_refs": {"TOKEN": f"../{VALUE}"}}, "agent.secret_refs.TOKEN"),
        ({"secret_refs": {"TOKEN": ".."}}, "agent.secret_refs.TOKEN"),
        ({"secret_refs": {"TOKEN": ""}}, "agent.secret_refs.TOKEN"),
        ({"secret_refs": {"A": "token"}, "environment": {"A": "b"}}, "agent.secret_refs.A"),
        (
            {"mcp_servers": [session_pb2.McpServer(name="far", http=http)]},
            "agent.mcp_servers[0].http.secret_refs.a",
        ),
        (
            {"mcp_servers": [session_pb2.McpServer(name="far", sse=twice)]},
            "agent.mcp_servers[0].sse.secret_refs.KEY",
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(talks, profile, **fields)
        error = from_rpc_error(refused.value)
        assert error.metadata["field"] == field
        assert VALUE not in str(error)


def test_headers_of_servers_that_are_called_are_filled_in(secrets: Path) -> None:
    called = session_pb2.McpHttp(
        url="http://127.0.0.1:1/", headers={"A": "b"}, secret_refs={"Authorization": "token"}
    )
    agent = session_pb2.AgentSpec(
        mcp_servers=[
            session_pb2.McpServer(name="one", http=called),
            session_pb2.McpServer(name="two", sse=called),
        ]
    )
    revealed = Secrets(secrets).reveal("default", agent)
    for server in revealed.mcp_servers:
        assert dict((server.http if server.HasField("http") else server.sse).headers) == {
            "A": "b",
            "Authorization": VALUE,
        }
    # The session's own is as it was.
    assert VALUE not in str(agent)


def test_what_cannot_be_read_is_refused_by_its_name_only(secrets: Path) -> None:
    (secrets / "default" / "binary").write_bytes(b"\xff\xfe")
    (secrets / "default" / "nul").write_bytes(b"a\0b")
    (secrets / "default" / "long").write_bytes(b"x" * (64 * 1024 + 1))
    (secrets / "default" / "directory").mkdir()
    os.mkfifo(secrets / "default" / "pipe")
    (secrets / "default" / "link").symlink_to("token")
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("binary", "nul", "long", "directory", "pipe"):
        with pytest.raises(TurnFailed) as refused:
            Secrets(secrets).reveal("default", session_pb2.AgentSpec(secret_refs={"A": name}))
        assert f"the secret {name} is not known: it cannot be read" in str(refused.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    # As Kubernetes mounts them.
    linked = Secrets(secrets).reveal("default", session_pb2.AgentSpec(secret_refs={"A": "link"}))
    assert dict(linked.environment) == {"A": VALUE}
    for project, name in (
        ("default", "../other/far"),
        ("default", ".."),
        ("default/..", "token"),
        ("", "token"),
    ):
        with pytest.raises(TurnFailed, match="the secret .unnamed. is not known") as refused:
            Secrets(secrets).reveal(project, session_pb2.AgentSpec(secret_refs={"A": name}))
        assert refused.value.code == "SECRET_UNKNOWN"
    with pytest.raises(TurnFailed) as refused:
        Secrets(None).reveal("default", session_pb2.AgentSpec(secret_refs={"A": "token"}))
    assert "--secrets-directory" in str(refused.value)


async def rows_with(database_url: str, text: str) -> list[str]:
    """The tables of all services that hold the text anywhere, also in bytes."""
    tables = await fetch(
        database_url,
        "SELECT schemaname || '.' || tablename AS name FROM pg_tables "
        "WHERE schemaname IN ('owner', 'session', 'workspace')",
    )
    found = []
    for table in tables:
        query = f"SELECT count(*) FROM {table['name']} AS row WHERE row::text LIKE $1 OR row::text LIKE $2"
        if await fetch_value(database_url, query, f"%{text}%", f"%{text.encode().hex()}%"):
            found.append(table["name"])
    return found
