"""What becomes of a workspace: which wishes are taken, and what closing does with them."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.session.v1 import session_pb2
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import open_channel
from services.common.errors import InvalidArgument
from services.session.bindings import CloudBinding, LocalBinding, Origin
from services.session.retention import Retention, check_retention
from services.session.sessions import RetentionPolicy
from tests.conditions import eventually
from tests.session.clients import Client
from tests.session.places import Places
from tests.session.tables import workspaces

TTL = session_pb2.RETENTION_POLICY_TTL
PINNED = session_pb2.RETENTION_POLICY_PINNED
MANUAL = session_pb2.RETENTION_POLICY_MANUAL
HOUR = Duration(seconds=3600)
PROVISION = provision_pb2.ProvisionSpec()


def asked(**fields: Any) -> Retention:
    return check_retention(session_pb2.CreateSessionRequest(**fields))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("retention", {"retention": 99}),
        ("retention_ttl", {"retention": TTL}),
        ("retention_ttl", {"retention": TTL, "retention_ttl": Duration()}),
        ("retention_ttl", {"retention": TTL, "retention_ttl": Duration(seconds=-1)}),
        ("retention_ttl", {"retention": TTL, "retention_ttl": Duration(seconds=1, nanos=-1)}),
        ("retention_ttl", {"retention": MANUAL, "retention_ttl": HOUR}),
        ("retention_ttl", {"retention_ttl": HOUR}),
        ("retention", {"retention": PINNED, "provision": provision_pb2.ProvisionSpec(ttl=HOUR)}),
        ("retention", {"retention": PINNED, "provision": provision_pb2.ProvisionSpec(idle_ttl=HOUR)}),
    ],
)
def test_a_wish_that_cannot_be_met_names_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        asked(**fields)
    assert [violation.field for violation in refusal.value.violations] == [field]


def test_wishes_that_can_be_met() -> None:
    assert asked() == Retention(None, None)
    assert asked(retention=TTL, retention_ttl=HOUR) == Retention(RetentionPolicy.TTL, timedelta(hours=1))
    assert asked(retention=PINNED, provision=PROVISION) == Retention(RetentionPolicy.PINNED, None)


def test_without_a_wish_what_was_made_goes_and_what_was_supplied_stays() -> None:
    for binding in (LocalBinding(Origin.PROVISIONED, "/w"), CloudBinding(Origin.PROVISIONED, "docker", "ws")):
        assert asked().policy_for(binding) is RetentionPolicy.DELETE_ON_CLOSE
    assert asked().policy_for(LocalBinding(Origin.SUPPLIED, "/w")) is RetentionPolicy.MANUAL
    pinned = asked(retention=PINNED).policy_for(LocalBinding(Origin.PROVISIONED, "/w"))
    assert pinned is RetentionPolicy.PINNED


@pytest.mark.parametrize("retention", [MANUAL, PINNED])
async def test_closing_leaves_what_is_to_be_kept(
    client: Client, database_url: str, retention: session_pb2.RetentionPolicy.ValueType
) -> None:
    made = await client.create(session_id="s1", provision=PROVISION, retention=retention, wait_ready=True)
    closed = await client.close("s1", wait=True)
    assert (closed.state, closed.retention) == (session_pb2.SESSION_STATE_CLOSED, retention)
    assert Path(made.binding.local.directory).is_dir()
    workspace = (await client.get("s1")).workspace
    assert not workspace.HasField("delete_time")
    assert await workspaces(database_url) == {made.workspace.workspace_id: "READY"}


async def test_a_workspace_outlives_its_session_for_as_long_as_was_asked(client: Client) -> None:
    made = await client.create(
        session_id="s1", provision=PROVISION, retention=TTL, retention_ttl=HOUR, wait_ready=True
    )
    assert (made.retention, made.retention_ttl) == (TTL, HOUR)
    assert not made.workspace.HasField("delete_time")
    await client.close("s1", wait=True)
    found = await client.get("s1")
    assert (found.state, found.workspace.state) == (session_pb2.SESSION_STATE_CLOSED, "READY")
    left = found.workspace.delete_time.ToDatetime(UTC) - found.create_time.ToDatetime(UTC)
    assert timedelta(hours=1) < left
    assert Path(made.binding.local.directory).is_dir()


async def test_and_then_it_goes(client: Client, places: Places) -> None:
    soon = Duration(nanos=1_000_000)
    made = await client.create(
        session_id="s1", provision=PROVISION, retention=TTL, retention_ttl=soon, wait_ready=True
    )
    await client.close("s1", wait=True)
    # Which the instance does by itself, too.
    async with open_channel(places.workspace_address) as channel:
        collected = await WorkspaceServiceStub(channel).CollectGarbage(workspace_pb2.CollectGarbageRequest())
    assert [found.kind for found in collected.garbage] == [workspace_pb2.GARBAGE_KIND_EXPIRED]

    async def gone() -> bool:
        return await workspaces(places.database_url) == {made.workspace.workspace_id: "DELETED"}

    await eventually(gone, within=30)
    assert not Path(made.binding.local.directory).exists()
    assert (await client.get("s1")).workspace.state == "DELETED"
