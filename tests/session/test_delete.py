"""DeleteSession on a whole replica with real neighbours: what is ended, what is left, and who is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from moorage.common.v1 import binding_pb2
from moorage.common.v1.grant_pb2 import Grant
from moorage.session.v1 import journal_pb2, session_pb2

from services.common.channels import open_channel
from services.common.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from tests.conditions import eventually
from tests.databases import fetch
from tests.session.clients import Client
from tests.session.closings import PROVISION, Held, held_session
from tests.session.desks import Desk
from tests.session.every_call import refusal, session_calls
from tests.session.places import NOWHERE, Places, running_session, running_workspace
from tests.session.tables import counts, remains, tombstones, workspaces
from tests.session.test_watch_service import watch

CLOSING, CLOSED = session_pb2.SESSION_STATE_CLOSING, session_pb2.SESSION_STATE_CLOSED
MANUAL = session_pb2.RETENTION_POLICY_MANUAL
PINNED = session_pb2.RETENTION_POLICY_PINNED


@pytest.fixture
async def held(places: Places, client: Client, desk: Desk) -> AsyncIterator[Held]:
    async with held_session(places, client, desk) as held:
        yield held


async def test_a_running_turn_is_stopped_its_runtime_ended_its_directory_and_rows_removed(
    held: Held, database_url: str
) -> None:
    await held.begun()
    await held.holder.ask(1)
    first = await held.client.delete("s1", request_id="r1")
    assert (first.session.state, first.session.operation.kind) == (CLOSING, "DELETE")
    assert not (await held.client.delete("s1", request_id="r1", wait=True)).HasField("session")
    assert held.order == ["stop", "end runtime"]
    assert not held.root.exists()
    assert set((await workspaces(database_url)).values()) == {"DELETED"}
    assert await remains(database_url, "s1") == {"sessions": 1, "request_ids": 1}
    # The id and the highest token, for ever; again, and nothing happens.
    assert await tombstones(database_url) == {"s1": 1}
    assert not (await held.client.delete("s1", request_id="r1", wait=True)).HasField("session")
    assert not (await held.taker.read("s1")).live


async def test_a_tombstone_keeps_nothing_that_anybody_gave(client: Client, database_url: str) -> None:
    await client.create(
        session_id="s1",
        labels={"a": "secret"},
        agent=session_pb2.AgentSpec(environment={"a": "secret"}),
        provision=PROVISION,
    )
    await client.delete("s1", wait=True)
    [row] = await fetch(database_url, "SELECT * FROM session.sessions")
    kept = {name: value for name, value in dict(row).items() if value not in (None, "", b"", "{}", 0)}
    kept.pop("create_time"), kept.pop("update_time")
    assert kept == {
        "project": "default",
        "session_id": "s1",
        "state": "DELETED",
        "approval_policy": "ALLOW",
        "retention": "MANUAL",
        "version": 1,
    }


async def test_every_call_about_it_is_not_found_and_its_id_is_never_used_again(
    client: Client, channel: grpc.aio.Channel, database_url: str
) -> None:
    for name in ("s1", "other"):
        await client.create(session_id=name, request_id=f"make {name}")
        await client.start(name, turn_id="t1")
    await client.stop("s1", "t1")
    await client.delete("s1", wait=True)
    service = session_pb2.DESCRIPTOR.services_by_name["SessionService"]
    calls = dict(session_calls(service, "s1"))
    told = {method.name: await refusal(channel, method, calls[method]) for method in calls}
    assert told == dict.fromkeys(_names(service) - {"CreateSession", "ListSessions"}, "SESSION_NOT_FOUND")
    with pytest.raises(AlreadyExists) as taken:
        await client.create(session_id="s1")
    assert taken.value.reason_name == "SESSION_ALREADY_EXISTS"
    assert "was deleted" in str(taken.value)
    with pytest.raises(NotFound):
        await client.create(session_id="s1", request_id="make s1")
    assert [session.session_id for session in (await client.list_sessions()).sessions] == ["other"]
    assert (await client.get_turn("other", "t1")).turn_id == "t1"
    assert (await counts(database_url))["records"] == 1


async def test_a_holder_of_it_is_not_found_whatever_it_shows(held: Held, desk: Desk) -> None:
    await held.begun()
    await held.client.delete("s1", wait=True)
    journal = journal_pb2.DESCRIPTOR.services_by_name["JournalService"]
    for grant in (desk.holder().grant, desk.holder(token=9).grant, Grant()):
        calls = dict(session_calls(journal, "s1", grant=grant))
        told = {method.name: await refusal(desk.channel, method, calls[method]) for method in calls}
        assert told == dict.fromkeys(_names(journal), "SESSION_NOT_FOUND")
    # Nor does anything of it come back.
    assert await desk.token() == 1


async def test_watchers_end_with_not_found_on_every_replica(places: Places, client: Client) -> None:
    await client.create(session_id="s1")
    async with (
        running_session(places) as other,
        open_channel(other.endpoint) as channel,
        watch(channel, "s1") as events,
    ):
        await client.start("s1", turn_id="t1")
        assert (await anext(events)).record.seq == 1
        waiting = asyncio.ensure_future(Client(channel).close("s1", wait=True))
        await client.delete("s1", wait=True)
        with pytest.raises(NotFound) as ended:
            async for _ in events:
                pass
        assert ended.value.reason_name == "SESSION_NOT_FOUND"
        # Whoever waits for it to be closed is told that it is gone, or was in time.
        outcome, _ = await asyncio.gather(waiting, asyncio.sleep(0), return_exceptions=True)
    assert isinstance(outcome, NotFound) or getattr(outcome, "state", None) == CLOSED


async def test_it_overtakes_a_close_and_one_that_is_closed_can_be_deleted(held: Held) -> None:
    held.runner.end_act = None
    await held.client.close("s1")
    await eventually(partial(_waits_for, held.client, f"{held.runner.holder} until "))
    deleting = (await held.client.delete("s1")).session
    assert (deleting.state, deleting.operation.kind) == (CLOSING, "DELETE")
    # Still there while somebody holds it; closing it again changes nothing.
    assert (await held.client.close("s1")).operation.kind == "DELETE"
    with pytest.raises(FailedPrecondition) as refused:
        await held.client.start("s1")
    assert refused.value.metadata["state"] == "CLOSING"
    await held.taker.release(held.lease)
    assert not (await held.client.delete("s1", wait=True, request_id="r1")).HasField("session")
    await held.client.create(session_id="s2")
    assert (await held.client.close("s2", wait=True)).state == CLOSED
    assert not (await held.client.delete("s2", wait=True)).HasField("session")


async def test_what_was_supplied_or_pinned_stays_and_nothing_else(
    client: Client, root: Path, database_url: str
) -> None:
    (root / "mine").mkdir()
    (root / "mine" / "file").write_text("mine")
    binding = binding_pb2.Binding(local=binding_pb2.LocalBinding(directory=str(root / "mine")))
    wished: dict[str, str] = {}
    kept: dict[str, bool] = {}
    for name, fields, stays in (
        ("supplied", {"binding": binding}, True),
        ("manual", {"provision": PROVISION, "retention": MANUAL}, False),
        ("pinned", {"provision": PROVISION, "retention": PINNED}, True),
    ):
        made = await client.create(session_id=name, wait_ready=True, **fields)
        await client.delete(name, wait=True)
        kept[name] = Path(made.binding.local.directory).is_dir()
        wished[made.workspace.workspace_id] = "READY" if name == "pinned" else "DELETED"
        assert kept[name] == stays, name
    assert (root / "mine" / "file").read_text() == "mine"
    assert await workspaces(database_url) == wished
    # The collector does not take it for one that no session ever had.
    [claimed] = await fetch(
        database_url, "SELECT claimed_at FROM workspace.workspaces WHERE session_id = 'pinned'"
    )
    assert claimed["claimed_at"] is not None


@pytest.mark.parametrize("retention", [MANUAL, PINNED])
async def test_what_is_out_of_reach_delays_it_and_is_told(
    places: Places, database_url: str, retention: session_pb2.RetentionPolicy.ValueType
) -> None:
    """Also a workspace that only has to be claimed, so that it is not taken for one that no session ever had."""
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        made = await Client(channel).create(
            session_id="s1", provision=PROVISION, retention=retention, wait_ready=True
        )
    lonely = replace(places, workspace_address=NOWHERE)
    async with (
        running_session(lonely, fence_timeout=0.1) as replica,
        open_channel(replica.endpoint) as channel,
    ):
        await Client(channel).delete("s1", request_id="r1")
        await eventually(partial(_waits_for, Client(channel), "workspace is unavailable"))
    assert Path(made.binding.local.directory).is_dir()
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        again = await Client(channel).delete("s1", request_id="r1", wait=True)
        assert not again.HasField("session")
    assert Path(made.binding.local.directory).exists() == (retention == PINNED)
    [row] = await fetch(database_url, "SELECT claimed_at FROM workspace.workspaces")
    assert (row["claimed_at"] is not None) == (retention == PINNED)


async def test_bad_input_is_refused(client: Client) -> None:
    with pytest.raises(NotFound) as unknown:
        await client.delete("s1")
    assert unknown.value.reason_name == "SESSION_NOT_FOUND"
    await client.create(session_id="s1")
    for call, name in (
        (client.delete("a b"), "session_id"),
        (client.delete("s1", request_id="r" * 256), "request_id"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await call
        assert refused.value.metadata["field"] == name


async def _waits_for(client: Client, reason: str) -> bool:
    return reason in (await client.get("s1")).operation.waiting_reason


def _names(service: ServiceDescriptor) -> set[str]:
    return {method.name for method in service.methods}


async def test_a_pinned_session_goes_when_an_instance_with_the_id_of_one_that_is_gone_serves(
    database_url: str, owner_address: str, root: Path, tmp_path: Path
) -> None:
    """The way out for operators: its state directory is empty, and the workspace is LOST by then."""
    state = tmp_path / "state"

    @contextlib.asynccontextmanager
    async def served() -> AsyncIterator[Client]:
        far = {"instance_id": "far", "root": root, "state_directory": state}
        async with (
            running_workspace(database_url, owner_address, **far) as address,
            running_session(Places(database_url, owner_address, address)) as replica,
            open_channel(replica.endpoint) as channel,
        ):
            yield Client(channel)

    async with served() as client:
        await client.create(session_id="s1", provision=PROVISION, retention=PINNED, wait_ready=True)
    state.rename(tmp_path / "gone")
    async with served() as client:
        await eventually(partial(_is_lost, database_url))
        assert not (await client.delete("s1", wait=True)).HasField("session")


async def _is_lost(database_url: str) -> bool:
    return set((await workspaces(database_url)).values()) == {"LOST"}
