"""CreateSession that fails or is cancelled: a workspace stays if and only if its session does (W2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator
from datetime import datetime
from pathlib import Path
from types import coroutine
from typing import Any, TypeVar

import asyncpg
import pytest
from moorage.common.v1 import provision_pb2
from moorage.session.v1 import session_pb2

from services.common import failpoints
from services.common.channels import Channels
from services.common.database import Database
from services.common.errors import AlreadyExists, DependencyUnavailable, MoorageError
from services.session.clients import Leases, Workspaces
from services.session.creation import Creation
from services.session.requests import RequestKey, key_of
from services.session.sessions import CreationOverdue, NewSession, Session
from services.session.store.sessions import SessionStore
from services.session.wishes import SessionWish, check_wish
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.places import Places
from tests.session.tables import counts, workspaces

T = TypeVar("T")
AFTER_PROVISION = "session.create_session.after_provision"
BEFORE_COMMIT = "session.create_session.before_commit"
REQUEST = session_pb2.CreateSessionRequest(provision=provision_pb2.ProvisionSpec(), request_id="r1")


class AnswerLost(SessionStore):
    """The commit stands, and its answer never comes."""

    async def create(self, draft: NewSession, key: RequestKey, *, by: datetime) -> Session:
        await super().create(draft, key, by=by)
        raise DependencyUnavailable(dependency="database", cause="connection lost")


class DatabaseGone(AnswerLost):
    """And nobody can be asked afterwards."""

    async def find_stored(self, draft: NewSession) -> Session | None:
        raise DependencyUnavailable(
            dependency="database", cause=f"no connection to ask for {draft.session_id}"
        )


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    async with Channels() as channels:
        yield channels


def creation(places: Places, channels: Channels, sessions: SessionStore, *, window: float = 60.0) -> Creation:
    leases = Leases(channels.to(places.owner_address))
    instances = Workspaces(channels, places.workspace_address)
    return Creation(sessions, instances, leases, pool="default", window=window)


def wish_and_key(request: session_pb2.CreateSessionRequest = REQUEST) -> tuple[SessionWish, RequestKey]:
    wish = check_wish("default", request, "demo")
    return wish, key_of("CreateSession", "default", "", request.request_id, request)


@coroutine
def cancelled_at(work: Coroutine[Any, Any, T], place: int) -> Generator[Any, Any, T]:
    """Run `work`, and cancel the task in the moment in which it waits for the `place`-th time."""
    task = asyncio.current_task()
    assert task is not None
    waits = 0
    try:
        waited = work.send(None)
        while True:
            waits += 1
            if waits == place:
                task.cancel()
            try:
                yield waited
            except BaseException as error:  # noqa: BLE001 (it is for the work to judge)
                waited = work.throw(error)
            else:
                waited = work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def kept(places: Places) -> set[str]:
    """The workspaces that nobody wants gone."""
    states = await workspaces(places.database_url)
    return {name for name, state in states.items() if state not in ("DELETING", "DELETED")}


async def of_sessions(places: Places) -> set[str]:
    connection = await asyncpg.connect(places.database_url)
    rows = await connection.fetch("SELECT workspace_id FROM session.sessions")
    await connection.close()
    return {row["workspace_id"] for row in rows}


async def test_cancelled_at_any_await_it_leaves_no_workspace_without_a_session(
    places: Places, channels: Channels, database: Database
) -> None:
    making = creation(places, channels, SessionStore(database))
    stored = 0
    for place in range(1, 200):
        # A cancelled statement costs its connection: with a new one the places are the same each time.
        await database.ping()
        request = session_pb2.CreateSessionRequest(
            provision=provision_pb2.ProvisionSpec(), request_id=f"r{place}"
        )
        task = asyncio.ensure_future(cancelled_at(making.create(*wish_and_key(request)), place))
        await asyncio.wait({task})
        assert await kept(places) == await of_sessions(places), f"cancelled at await {place}"
        if not task.cancelled():
            task.result()
            break
        stored = len(await of_sessions(places))
    else:
        pytest.fail("it never came to its end")
    assert place > 8
    # Some cancellations came when the session was stored already: those rolled nothing back.
    assert stored > 0


async def test_a_caller_that_goes_away_before_the_session_is_stored_leaves_nothing(
    client: Client, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = tmp_path / "pause"
    monkeypatch.setitem(failpoints._active, AFTER_PROVISION, f"pause:{pause}")
    calling = asyncio.create_task(client.create(provision=provision_pb2.ProvisionSpec()))
    await eventually(pause.with_name("pause.reached").exists)
    assert len(await kept(places)) == 1
    calling.cancel()

    async def gone() -> bool:
        return not await kept(places)

    await eventually(gone)
    assert (await counts(places.database_url))["sessions"] == 0


async def test_a_caller_that_goes_away_while_it_is_stored_rolls_nothing_back(
    client: Client, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = tmp_path / "pause"
    monkeypatch.setitem(failpoints._active, BEFORE_COMMIT, f"pause:{pause}")
    calling = asyncio.create_task(client.create(session_id="s1", provision=provision_pb2.ProvisionSpec()))
    await eventually(pause.with_name("pause.reached").exists)
    calling.cancel()
    await asyncio.wait({calling})
    pause.touch()

    async def stored() -> bool:
        return bool(await of_sessions(places))

    await eventually(stored)
    session = await client.get("s1")
    assert await kept(places) == {session.workspace.workspace_id}
    assert (await client.start("s1")).turn_id


async def test_an_error_before_the_session_is_stored_leaves_nothing(
    client: Client, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._active, AFTER_PROVISION, "error")
    with pytest.raises(MoorageError, match="internal error"):
        await client.create(provision=provision_pb2.ProvisionSpec())
    assert await kept(places) == set()


async def test_a_connection_lost_before_the_commit_leaves_nothing(
    places: Places, channels: Channels, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = tmp_path / "pause"
    monkeypatch.setitem(failpoints._active, BEFORE_COMMIT, f"pause:{pause}")
    making = asyncio.create_task(creation(places, channels, SessionStore(database)).create(*wish_and_key()))
    await eventually(pause.with_name("pause.reached").exists)
    await terminate_transactions(places.database_url)
    pause.touch()
    with pytest.raises(DependencyUnavailable):
        await making
    assert await kept(places) == set()
    assert (await counts(places.database_url))["request_ids"] == 0


async def terminate_transactions(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'
        """
    )
    await connection.close()


async def test_a_commit_whose_answer_was_lost_is_found(
    places: Places, channels: Channels, database: Database
) -> None:
    session = await creation(places, channels, AnswerLost(database)).create(*wish_and_key())
    assert await kept(places) == {session.workspace_id} == await of_sessions(places)


async def test_a_workspace_stays_when_nobody_can_tell_whether_its_session_does(
    places: Places, channels: Channels, database: Database
) -> None:
    with pytest.raises(DependencyUnavailable, match="connection lost"):
        await creation(places, channels, DatabaseGone(database)).create(*wish_and_key())
    assert await kept(places) == await of_sessions(places)
    assert len(await kept(places)) == 1


async def test_a_session_that_comes_too_late_is_not_stored_and_its_workspace_goes(
    places: Places, channels: Channels, database: Database
) -> None:
    with pytest.raises(CreationOverdue):
        await creation(places, channels, SessionStore(database), window=0.0).create(*wish_and_key())
    assert await kept(places) == set()
    tables = await counts(places.database_url)
    assert (tables["sessions"], tables["request_ids"]) == (0, 0)
    # The call can be repeated.
    session = await creation(places, channels, SessionStore(database)).create(*wish_and_key())
    assert await kept(places) == {session.workspace_id}


async def test_whoever_loses_the_race_for_an_id_removes_only_its_own_workspace(
    places: Places, channels: Channels, database: Database
) -> None:
    making = creation(places, channels, SessionStore(database))
    request = session_pb2.CreateSessionRequest(session_id="s1", provision=provision_pb2.ProvisionSpec())
    results = await asyncio.gather(
        *(making.create(*wish_and_key(request)) for _ in range(5)), return_exceptions=True
    )
    made = [result for result in results if isinstance(result, Session)]
    assert [type(result).__mro__[1] for result in results if result not in made] == [AlreadyExists] * 4
    assert await kept(places) == {made[0].workspace_id} == await of_sessions(places)
