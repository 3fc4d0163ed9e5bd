"""GetSession, ListSessions and UpdateSession."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.common.channels import open_channel
from services.common.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from tests.databases import execute
from tests.session.clients import Client
from tests.session.places import Places, running_owner, running_session, running_workspace


async def test_a_session_that_does_not_exist(client: Client) -> None:
    calls = [
        client.get("s1"),
        client.update("s1", "labels"),
        client.start("s1"),
        client.get_turn("s1", "t1"),
        client.list_turns("s1"),
    ]
    for call in calls:
        with pytest.raises(NotFound) as refusal:
            await call
        assert refusal.value.reason == ErrorReason.ERROR_REASON_SESSION_NOT_FOUND
        assert refusal.value.metadata == {"project": "default", "session_id": "s1"}


async def test_malformed_ids_name_their_field(client: Client) -> None:
    calls = [
        ("session_id", client.get("a/b")),
        ("session_id", client.update("", "labels")),
        ("session_id", client.start("ü")),
        ("turn_id", client.get_turn("s1", "a b")),
        ("session_id", client.list_turns("s" * 129)),
        ("page_size", client.list_sessions(page_size=-1)),
        ("page_token", client.list_sessions(page_token="bm9uc2Vuc2U")),
        ("page_token", client.list_turns("s1", page_token="x")),
        ("labels", client.list_sessions(labels={"": "x"})),
    ]
    for field, call in calls:
        with pytest.raises(InvalidArgument) as refusal:
            await call
        assert [violation.field for violation in refusal.value.violations] == [field]


async def test_a_malformed_project_is_refused(channel: grpc.aio.Channel) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await Client(channel, "No Project").get("s1")
    assert [violation.field for violation in refusal.value.violations] == ["moorage-project"]


async def test_what_is_going_on_is_told_in_one_answer(client: Client, places: Places) -> None:
    await client.create(session_id="s1", wait_ready=True)
    turn = await client.start("s1", "hello")
    async with open_channel(places.owner_address) as channel:
        request = lease_pb2.AcquireLeaseRequest(
            resource="projects/default/sessions/s1",
            holder="runner/1",
            ttl=Duration(seconds=60),
            labels={"role": "runner"},
        )
        lease = (await LeaseServiceStub(channel).AcquireLease(request)).lease
        session = await client.get("s1")
        assert (session.lease.holder, session.lease.token) == ("runner/1", lease.token)
        assert session.lease.expire_time == lease.expire_time
        release = lease_pb2.ReleaseLeaseRequest(
            resource=lease.resource, holder=lease.holder, token=lease.token
        )
        await LeaseServiceStub(channel).ReleaseLease(release)
    assert not (await client.get("s1")).HasField("lease")
    assert session.turn.turn_id == turn.turn_id
    assert session.turn.state == turn_pb2.TURN_STATE_ADMITTED
    assert session.turn.phase == turn_pb2.TURN_PHASE_WAITING_FOR_RUNNER
    assert (session.head_seq, session.workspace.state) == (1, "READY")


async def test_a_session_is_told_while_owner_and_workspace_are_away(
    database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, state = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("state")
    async with running_owner(database_url) as owner:
        instance = running_workspace(
            database_url, owner, root=root, default_directory=root, state_directory=state
        )
        async with instance as workspace:
            replica = running_session(Places(database_url, owner, workspace))
            service = await replica.__aenter__()
            channel = open_channel(service.endpoint)
            client = Client(channel)
            created = await client.create(session_id="s1")
    session = await client.get("s1")
    assert session.workspace.workspace_id == created.workspace.workspace_id
    assert session.workspace.state == ""
    assert not session.HasField("lease")
    await channel.close()
    await replica.__aexit__(None, None, None)


async def test_sessions_are_listed_newest_first(client: Client) -> None:
    names = [f"s{n}" for n in range(7)]
    for name in names:
        await client.create(session_id=name)
    listed: list[str] = []
    token = ""
    while True:
        page = await client.list_sessions(page_size=3, page_token=token)
        listed += [session.session_id for session in page.sessions]
        # What is made meanwhile does not shift the pages behind it.
        await client.create()
        if not (token := page.next_page_token):
            break
    assert listed == names[::-1]


async def test_sessions_are_listed_by_all_of_their_labels(client: Client, channel: grpc.aio.Channel) -> None:
    await client.create(session_id="s1", labels={"team": "a", "kind": "x"})
    await client.create(session_id="s2", labels={"team": "a", "kind": "y"})
    await Client(channel, "other").create(session_id="s3", labels={"team": "a"})

    async def found(**labels: str) -> list[str]:
        return [session.session_id for session in (await client.list_sessions(labels=labels)).sessions]

    assert await found(team="a") == ["s2", "s1"]
    assert await found(team="a", kind="x") == ["s1"]
    assert await found(team="A") == []


async def test_a_token_of_another_listing_is_refused(client: Client) -> None:
    for _ in range(2):
        await client.create(labels={"a": "1"})
    token = (await client.list_sessions(page_size=1, labels={"a": "1"})).next_page_token
    with pytest.raises(InvalidArgument) as refusal:
        await client.list_sessions(page_size=1, page_token=token)
    assert [violation.field for violation in refusal.value.violations] == ["page_token"]


async def test_a_page_of_sessions_stays_below_what_clients_receive(client: Client) -> None:
    for n in range(20):
        await client.create(session_id=f"s{n}")
        await client.start(f"s{n}", "x" * 250_000)
    listed: list[str] = []
    token = ""
    while True:
        page = await client.list_sessions(page_size=1000, page_token=token)
        assert page.ByteSize() < 2 * 1024 * 1024
        listed += [session.session_id for session in page.sessions]
        if not (token := page.next_page_token):
            break
    assert listed == [f"s{n}" for n in reversed(range(20))]


async def test_an_update_changes_what_its_mask_names(client: Client) -> None:
    before = await client.create(session_id="s1", labels={"a": "1"})
    after = await client.update(
        "s1",
        "labels",
        "limits",
        labels={"b": "2"},
        limits=turn_pb2.Limits(max_tool_calls=3),
        approval_policy=turn_pb2.APPROVAL_POLICY_DENY,
    )
    assert dict(after.labels) == {"b": "2"}
    assert after.limits.max_tool_calls == 3
    assert after.approval_policy == turn_pb2.APPROVAL_POLICY_ALLOW
    assert after.etag != before.etag
    assert after.update_time.ToNanoseconds() > before.update_time.ToNanoseconds()
    assert dict((await client.update("s1", "labels")).labels) == {}


BAD_UPDATES: list[tuple[str, list[str], dict[str, object]]] = [
    ("update_mask", [], {}),
    ("update_mask", ["labels", "binding"], {}),
    ("labels", ["labels"], {"labels": {"": "x"}}),
    ("approval_policy", ["approval_policy"], {"approval_policy": 99}),
    ("limits.max_tool_calls", ["limits"], {"limits": turn_pb2.Limits(max_tool_calls=-1)}),
    ("request_id", ["labels"], {"request_id": "r" * 256}),
    ("etag", ["labels"], {"etag": "v\0"}),
]


async def test_a_bad_update_names_its_field_and_changes_nothing(client: Client) -> None:
    before = await client.create(session_id="s1")
    for field, paths, fields in BAD_UPDATES:
        with pytest.raises(InvalidArgument) as refusal:
            await client.update("s1", *paths, **fields)
        assert [violation.field for violation in refusal.value.violations] == [field]
    assert (await client.get("s1")).etag == before.etag


async def test_an_update_of_another_version_is_refused(client: Client) -> None:
    old = (await client.create(session_id="s1")).etag
    new = (await client.update("s1", "labels", labels={"a": "1"}, etag=old)).etag
    with pytest.raises(Aborted) as refusal:
        await client.update("s1", "labels", labels={"a": "2"}, etag=old)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_ETAG_MISMATCH
    assert refusal.value.metadata == {"session_id": "s1", "stored": new, "given": old}
    assert dict((await client.get("s1")).labels) == {"a": "1"}


async def test_of_updates_with_one_etag_one_wins(client: Client) -> None:
    etag = (await client.create(session_id="s1")).etag
    results = await asyncio.gather(
        *(client.update("s1", "labels", labels={"n": str(n)}, etag=etag) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Aborted) for result in results) == 7


async def test_a_repeated_update_has_one_effect(client: Client) -> None:
    await client.create(session_id="s1")
    first = await client.update("s1", "labels", labels={"a": "1"}, request_id="r1")
    assert await client.update("s1", "labels", labels={"a": "1"}, request_id="r1") == first
    later = await client.update("s1", "labels", labels={"a": "2"})
    assert await client.update("s1", "labels", labels={"a": "1"}, request_id="r1") == later
    with pytest.raises(AlreadyExists) as refusal:
        await client.update("s1", "labels", labels={"a": "3"}, request_id="r1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_REQUEST_ID_REUSED


async def test_a_session_with_a_binding_of_unknown_kind_can_still_be_read(
    client: Client, database_url: str
) -> None:
    await client.create(session_id="s1")
    await execute(database_url, "UPDATE session.sessions SET binding_kind = 'orbital'")
    session = await client.get("s1")
    assert not session.HasField("binding")
    assert session.placement == binding_pb2.PLACEMENT_UNSPECIFIED
    assert len((await client.list_sessions()).sessions) == 1
