"""`session delete` against a running `up`: asked about, done, and a new session afterwards."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.connection import Connection, connect
from services.cli.directory import session_of
from services.cli.making import Making
from tests.cli.programs import Place, error_of
from tests.cli.test_orders import documents, read_until, running, session_here, terminal

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

pytestmark = pytest.mark.timeout(120)


def test_it_wants_a_yes_and_ends_what_runs_and_the_next_run_makes_a_new_session(here: Place) -> None:
    turn = running(here, "count to 100000 every 0.05")
    names = [session_here(here)["sessionId"]]
    refused = here.moorage("session", "delete")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: nobody can be asked: delete {names[0]} with its ")
    assert refused.stderr.endswith(" for good?\n--yes says that it is meant\n")
    assert here.moorage("session", "get", names[0]).returncode == 0
    deleted = here.moorage("session", "delete", "--yes")
    assert (deleted.returncode, deleted.stdout) == (0, f"{names[0]} is deleted\n")
    assert turn.ended()[0] in (1, 3)
    assert here.moorage("session", "get", names[0]).returncode == 1
    # The first of a directory, and the one after it, and so on: each is another one.
    for _ in range(2):
        assert here.moorage("run", "say anew").returncode == 0
        names.append(session_here(here)["sessionId"])
        told = here.moorage("session", "delete", names[-1], "--yes", "--json")
        assert documents(told.stdout) == [{"sessionId": names[-1], "deleted": True}]
    assert len(set(names)) == 3
    again = here.moorage("session", "delete", names[-1], "--yes", "--json")
    assert again.returncode == 1
    assert error_of(again.stderr)["reason"] == "SESSION_NOT_FOUND"
    taken = here.moorage("session", "create", names[-1], "--directory", ".")
    assert "was deleted" in taken.stderr


def test_with_other_options_a_new_session_follows_one_that_was_deleted(here: Place) -> None:
    names = []
    for flags in (["--approval", "allow"], ["--approval", "deny"]):
        ran = here.moorage("run", "say anew", *flags)
        assert ran.returncode == 0, ran.stderr
        session = session_here(here)
        names.append(session["sessionId"])
        assert session["approvalPolicy"] == f"APPROVAL_POLICY_{flags[1].upper()}"
        beside = here.moorage("run", "say beside", "--new", "--approval", "allow")
        assert beside.returncode == 0
        names.append(session_here(here)["sessionId"])
        assert here.moorage("session", "delete", "--yes", *names[-2:]).returncode == 0
    assert len(set(names)) == len(names)


class Counting:
    """Passes calls on to the session service, and counts creations."""

    def __init__(self, sessions: Any) -> None:
        self._sessions = sessions
        self.creations = 0

    def __getattr__(self, name: str) -> Any:
        self.creations += name == "CreateSession"
        return getattr(self._sessions, name)


async def test_however_many_were_deleted_a_few_calls_make_a_new_one(moored: Place, here: Place) -> None:
    names = []
    async with connect(
        json.loads((moored.state / "up.json").read_text())["session"], "default"
    ) as connection:
        counting = Counting(connection.sessions)
        counted = Connection(cast("SessionServiceAsyncStub", counting), connection.metadata)
        ask = partial(
            session_of, counted, here.work, agent=session_pb2.AgentSpec(profile="demo"), making=Making()
        )
        for _ in range(10):
            before = counting.creations
            session = await ask(approval_policy=turn_pb2.APPROVAL_POLICY_DENY)
            assert counting.creations - before <= 6
            names.append(session.session_id)
            assert (await ask(approval_policy=turn_pb2.APPROVAL_POLICY_DENY)).session_id == names[-1]
            request = session_pb2.DeleteSessionRequest(session_id=session.session_id, wait=True)
            await connection.sessions.DeleteSession(request, metadata=connection.metadata)
    assert len(set(names)) == len(names)


async def test_two_who_ask_at_once_make_one_also_after_a_deletion(moored: Place, here: Place) -> None:
    async with connect(
        json.loads((moored.state / "up.json").read_text())["session"], "default"
    ) as connection:
        ask = partial(
            session_of, connection, here.work, agent=session_pb2.AgentSpec(profile="demo"), making=Making()
        )
        for policy in (
            turn_pb2.APPROVAL_POLICY_DENY,
            turn_pb2.APPROVAL_POLICY_ALLOW,
            turn_pb2.APPROVAL_POLICY_ALLOW,
        ):
            first, second = await asyncio.gather(*[ask(approval_policy=policy) for _ in range(2)])
            assert first.session_id == second.session_id
            assert first.approval_policy == policy
            request = session_pb2.DeleteSessionRequest(session_id=first.session_id, wait=True)
            await connection.sessions.DeleteSession(request, metadata=connection.metadata)


@pytest.mark.parametrize(("key", "code"), [(b"y\n", 0), (b"n\n", 2)])
def test_a_terminal_is_asked(here: Place, key: bytes, code: int) -> None:
    assert here.moorage("run", "say hello").returncode == 0
    name = session_here(here)["sessionId"]
    with terminal(here, "session", "delete") as (process, screen):
        asked = read_until(screen, "[y: do it, n: leave it] ")
        assert f"delete {name} with its " in asked
        os.write(screen, key)
        read_until(screen, "is deleted" if code == 0 else "nothing was done")
        assert process.wait() == code
    assert here.moorage("session", "get", name).returncode == (1 if code == 0 else 0)
