"""Waiting for a workspace: what is told meanwhile, and how it ends."""

from __future__ import annotations

import pytest
from moorage.session.v1 import session_pb2

from services.cli.connection import connect
from services.cli.demo import Demo
from services.cli.readiness import NotReady, settled
from tests.cli.peers import SESSION, one_after_the_other, serving

DENIED = "no engine at unix:///var/run/docker.sock: Permission denied"


def made(state: str, reason: str = "") -> session_pb2.Session:
    workspace = session_pb2.SessionWorkspace(workspace_id="ws", state=state, state_reason=reason)
    return session_pb2.Session(session_id="s", workspace=workspace, labels={"made-by": "demo"})


def got(state: str, reason: str = "") -> session_pb2.GetSessionResponse:
    return session_pb2.GetSessionResponse(session=made(state, reason))


async def test_each_reason_to_wait_is_told_once() -> None:
    waits = (got("PROVISIONING"), got("PROVISIONING", DENIED), got("PROVISIONING", DENIED), got(""))
    answers = {"GetSession": one_after_the_other(*waits, got("READY"))}
    told: list[str] = []
    async with serving(SESSION, answers) as peer, connect(peer.address, "default") as connection:
        session = await settled(connection, "s", told.append)
    assert session.workspace.state == "READY"
    assert told == [
        f"the workspace is not ready yet: {DENIED}",
        "the workspace is not ready yet: the workspace service does not answer",
    ]


async def test_a_demo_whose_workspace_is_not_made_says_why_and_leaves_nothing() -> None:
    answers = {
        "CreateSession": lambda _: session_pb2.CreateSessionResponse(session=made("PROVISIONING")),
        "GetSession": lambda _: got("PROVISIONING", DENIED),
        "CloseSession": lambda _: session_pb2.CloseSessionResponse(session=made("DELETING")),
    }
    told: list[str] = []
    async with serving(SESSION, answers) as peer, connect(peer.address, "default") as connection:
        demo = Demo(connection, lambda *_: None, told.append, "docker", remote=True, ready_within=0)
        with pytest.raises(NotReady, match=DENIED):
            await demo.run()
    assert told[0] == f"the workspace is not ready yet: {DENIED}"
    assert peer.calls == ["CreateSession", "GetSession", "CloseSession"]


async def test_a_workspace_that_failed_is_waited_for_no_longer() -> None:
    answers = {
        "CreateSession": lambda _: session_pb2.CreateSessionResponse(session=made("PROVISIONING")),
        "GetSession": lambda _: got("FAILED", "the image is not there"),
    }
    async with serving(SESSION, answers) as peer, connect(peer.address, "default") as connection:
        with pytest.raises(
            Exception, match="its workspace is ready; seen: ws is FAILED: the image is not there"
        ):
            await Demo(connection, lambda *_: None, lambda _: None, "docker").run()
