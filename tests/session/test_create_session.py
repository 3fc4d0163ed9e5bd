"""CreateSession on real neighbours: what is made, what is refused, and what a repetition finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import binding_pb2, provision_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import session_pb2
from structlog.testing import capture_logs

from services.common.channels import open_channel
from services.common.errors import (
    AlreadyExists,
    DependencyUnavailable,
    FailedPrecondition,
    InvalidArgument,
    MoorageError,
)
from services.session.server import SessionReplica
from tests.databases import execute
from tests.session.clients import Client
from tests.session.places import NOWHERE, Places, running_session, running_workspace
from tests.session.tables import counts, workspaces

Binding = binding_pb2.Binding


def local(directory: Path | str) -> Binding:
    return Binding(local=binding_pb2.LocalBinding(directory=str(directory)))


async def test_a_session_in_a_supplied_directory(client: Client, root: Path, places: Places) -> None:
    (root / "app").mkdir()
    session = await client.create(
        session_id="s1",
        binding=local(root / "app"),
        agent=session_pb2.AgentSpec(environment={"A": "1"}),
        limits=turn_pb2.Limits(max_duration=Duration(seconds=60)),
        labels={"team": "a"},
        wait_ready=True,
    )
    assert session.state == session_pb2.SESSION_STATE_OPEN
    assert session.agent == session_pb2.AgentSpec(profile="demo", environment={"A": "1"})
    assert session.approval_policy == turn_pb2.APPROVAL_POLICY_ALLOW
    assert session.limits.max_duration.seconds == 60
    assert session.binding.origin == binding_pb2.BINDING_ORIGIN_SUPPLIED
    assert session.binding.local.directory == str(root / "app")
    assert session.placement == binding_pb2.PLACEMENT_SERVER_EMBEDDED
    assert session.workspace.state == "READY"
    assert (session.head_seq, session.HasField("turn"), session.HasField("lease")) == (0, False, False)
    assert await workspaces(places.database_url) == {session.workspace.workspace_id: "READY"}


async def test_a_session_in_a_new_directory(client: Client, tmp_path: Path) -> None:
    session = await client.create(provision=provision_pb2.ProvisionSpec(), wait_ready=True)
    assert session.session_id.startswith("session_")
    assert session.binding.origin == binding_pb2.BINDING_ORIGIN_PROVISIONED
    assert session.workspace.state == "READY"
    directory = Path(session.binding.local.directory)
    assert directory.is_dir()
    assert directory.is_relative_to(tmp_path / "state")


async def test_without_a_workspace_the_default_directory_is_used_with_a_warning(
    client: Client, root: Path
) -> None:
    with capture_logs() as logged:
        session = await client.create(session_id="s1")
    assert session.binding.local.directory == str(root)
    assert session.binding.origin == binding_pb2.BINDING_ORIGIN_SUPPLIED
    told = [line for line in logged if line["event"].startswith("no workspace was named")]
    assert [(line["log_level"], line["session"], line["directory"]) for line in told] == [
        ("warning", "s1", str(root))
    ]


async def test_without_a_policy_users_are_asked(client: Client) -> None:
    session = await client.create(approval_policy=turn_pb2.APPROVAL_POLICY_UNSPECIFIED)
    assert session.approval_policy == turn_pb2.APPROVAL_POLICY_ASK


async def test_a_taken_id_is_refused_and_makes_no_workspace(client: Client, places: Places) -> None:
    await client.create(session_id="s1")
    before = await workspaces(places.database_url)
    with pytest.raises(AlreadyExists) as refusal:
        await client.create(session_id="s1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_SESSION_ALREADY_EXISTS
    assert refusal.value.metadata == {"project": "default", "session_id": "s1"}
    assert await workspaces(places.database_url) == before


BAD_INPUT: list[tuple[str, dict[str, object]]] = [
    ("session_id", {"session_id": "a b"}),
    ("session_id", {"session_id": "s" * 129}),
    ("request_id", {"request_id": "r" * 256}),
    ("request_id", {"request_id": "a\0b"}),
    ("agent.profile", {"agent": session_pb2.AgentSpec(profile="../demo")}),
    ("agent.environment", {"agent": session_pb2.AgentSpec(environment={"1": "x"})}),
    ("labels", {"labels": {"": "x"}}),
    ("approval_policy", {"approval_policy": 99}),
    ("limits.max_tool_calls", {"limits": turn_pb2.Limits(max_tool_calls=-1)}),
    ("binding", {"binding": Binding()}),
    ("binding.local.directory", {"binding": local("")}),
    ("binding.local.directory", {"binding": local("relative")}),
    ("provision.provider", {"provision": provision_pb2.ProvisionSpec(provider="no name")}),
    ("provision.image", {"provision": provision_pb2.ProvisionSpec(image="busybox")}),
    (
        "provision.network",
        {"provision": provision_pb2.ProvisionSpec(network=provision_pb2.NETWORK_POLICY_NONE)},
    ),
    ("retention_ttl", {"retention": session_pb2.RETENTION_POLICY_TTL}),
]


async def test_bad_input_names_its_field_and_leaves_nothing(client: Client, places: Places) -> None:
    for field, fields in BAD_INPUT:
        with pytest.raises(InvalidArgument) as refusal:
            await client.create(**fields)
        assert refusal.value.reason == ErrorReason.ERROR_REASON_INVALID_FIELD
        assert [violation.field for violation in refusal.value.violations] == [field]
    assert (await counts(places.database_url))["sessions"] == 0
    assert await workspaces(places.database_url) == {}


async def test_a_path_outside_the_root_is_refused_by_the_name_the_client_gave_it(
    client: Client, places: Places, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await client.create(binding=local(tmp_path))
    assert refusal.value.reason == ErrorReason.ERROR_REASON_PATH_OUTSIDE_ROOT
    assert [violation.field for violation in refusal.value.violations] == ["binding.local.directory"]
    assert await workspaces(places.database_url) == {}


@pytest.mark.parametrize(
    "binding",
    [
        Binding(cloud=binding_pb2.CloudBinding(provider="e2b")),
        Binding(external=binding_pb2.ExternalBinding(worker_pool="laptops", executor_kind="process")),
    ],
    ids=["cloud", "external"],
)
async def test_bindings_that_are_not_served_yet_are_refused(client: Client, binding: Binding) -> None:
    with pytest.raises(FailedPrecondition) as refusal:
        await client.create(binding=binding)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_BINDING_UNRESOLVED
    assert refusal.value.metadata["field"] == "binding"
    assert refusal.value.metadata["kind"] == binding.WhichOneof("kind")


async def test_an_unknown_provider_is_refused(client: Client) -> None:
    with pytest.raises(FailedPrecondition) as refusal:
        await client.create(provision=provision_pb2.ProvisionSpec(provider="orbital"))
    assert refusal.value.reason == ErrorReason.ERROR_REASON_PROVIDER_UNAVAILABLE
    assert refusal.value.metadata["provider"] == "orbital"


async def test_without_a_default_directory_a_workspace_must_be_named(
    database_url: str, owner_address: str, root: Path, tmp_path: Path
) -> None:
    instance = running_workspace(database_url, owner_address, root=root, state_directory=tmp_path / "state")
    async with (
        instance as address,
        running_session(Places(database_url, owner_address, address)) as replica,
        open_channel(replica.endpoint) as channel,
    ):
        with pytest.raises(InvalidArgument) as refusal:
            await Client(channel).create()
    assert refusal.value.reason == ErrorReason.ERROR_REASON_BINDING_REQUIRED
    assert [violation.field for violation in refusal.value.violations] == ["workspace"]


async def test_an_unreachable_workspace_service_is_named(places: Places) -> None:
    away = Places(places.database_url, places.owner_address, NOWHERE)
    async with running_session(away) as replica, open_channel(replica.endpoint) as channel:
        with pytest.raises(MoorageError) as refusal:
            await Client(channel).create()
    assert refusal.value.reason == DependencyUnavailable.reason
    assert refusal.value.metadata["dependency"] == "workspace"
    assert (await counts(places.database_url))["sessions"] == 0


async def register_runner(owner_address: str, name: str, **labels: str) -> None:
    async with open_channel(owner_address) as channel:
        request = lease_pb2.AcquireLeaseRequest(
            resource=f"runners/{name}",
            holder=f"{name}/1",
            ttl=Duration(seconds=60),
            endpoint=NOWHERE,
            labels={"role": "runner", **labels},
        )
        await LeaseServiceStub(channel).AcquireLease(request)


async def test_a_profile_that_no_runner_offers_is_unknown(client: Client, places: Places) -> None:
    await client.create(agent=session_pb2.AgentSpec(profile="poet"))
    await register_runner(places.owner_address, "elsewhere", pool="gpu", capacity="1", profiles="poet")
    await client.create(agent=session_pb2.AgentSpec(profile="poet"))
    await register_runner(places.owner_address, "one", pool="default", capacity="4", profiles="demo, coder")
    await register_runner(places.owner_address, "two", pool="default", capacity="4", profiles="tester")
    before = await counts(places.database_url)
    with pytest.raises(InvalidArgument) as refusal:
        await client.create(agent=session_pb2.AgentSpec(profile="poet"))
    assert refusal.value.reason == ErrorReason.ERROR_REASON_PROFILE_UNKNOWN
    assert [violation.field for violation in refusal.value.violations] == ["agent.profile"]
    assert refusal.value.metadata["profiles"] == "coder, demo, tester"
    assert await counts(places.database_url) == before
    assert (await client.create(agent=session_pb2.AgentSpec(profile="tester"))).agent.profile == "tester"


NONE = provision_pb2.ProvisionSpec(provider="docker", network=provision_pb2.NETWORK_POLICY_NONE)


async def test_an_agent_that_needs_a_network_is_refused_without_one(client: Client, places: Places) -> None:
    labels = {"capacity": "4", "profiles": "demo,coder", "networked": "coder"}
    await register_runner(places.owner_address, "elsewhere", pool="gpu", **labels)
    # Nobody of the pool says that it does; this machine has no such provider.
    with pytest.raises(FailedPrecondition) as refusal:
        await client.create(agent=session_pb2.AgentSpec(profile="coder"), provision=NONE)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_PROVIDER_UNAVAILABLE
    await register_runner(places.owner_address, "one", pool="default", **labels)
    with pytest.raises(FailedPrecondition) as refusal:
        await client.create(agent=session_pb2.AgentSpec(profile="coder"), provision=NONE)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_NETWORK_REQUIRED
    assert refusal.value.metadata == {"field": "provision.network", "profile": "coder", "network": "NONE"}
    assert "coder need a network, and that of the workspace is NONE" in str(refusal.value)
    assert await workspaces(places.database_url) == {}
    # On the machine itself there is one, and the demo agent needs none.
    made = await client.create(
        agent=session_pb2.AgentSpec(profile="coder"), provision=provision_pb2.ProvisionSpec()
    )
    assert made.workspace.provider in ("", "local")
    with pytest.raises(FailedPrecondition) as refusal:
        await client.create(provision=NONE)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_PROVIDER_UNAVAILABLE


async def test_a_repeated_call_finds_the_session_as_it_is_now(client: Client, places: Places) -> None:
    first = await client.create(request_id="r1", labels={"a": "1"})
    await client.update(first.session_id, "approval_policy", approval_policy=turn_pb2.APPROVAL_POLICY_DENY)
    turn = await client.start(first.session_id)
    again = await client.create(request_id="r1", labels={"a": "1"})
    assert again.session_id == first.session_id
    assert again.approval_policy == turn_pb2.APPROVAL_POLICY_DENY
    assert (again.turn.turn_id, again.head_seq) == (turn.turn_id, 1)
    assert (await counts(places.database_url))["sessions"] == 1
    assert len(await workspaces(places.database_url)) == 1


async def test_a_request_id_with_other_content_is_refused(client: Client, places: Places) -> None:
    await client.create(request_id="r1", labels={"a": "1"})
    with pytest.raises(AlreadyExists) as refusal:
        await client.create(request_id="r1", labels={"a": "2"})
    assert refusal.value.reason == ErrorReason.ERROR_REASON_REQUEST_ID_REUSED
    assert refusal.value.metadata == {"request_id": "r1", "rpc": "CreateSession"}
    assert len(await workspaces(places.database_url)) == 1


async def test_a_refused_call_does_not_use_up_its_request_id(client: Client, root: Path) -> None:
    with pytest.raises(InvalidArgument):
        await client.create(request_id="r1", binding=local(root / "later"))
    (root / "later").mkdir()
    assert (await client.create(request_id="r1", binding=local(root / "later"))).session_id


async def test_projects_have_their_own_sessions_and_request_ids(
    channel: grpc.aio.Channel, client: Client
) -> None:
    other = Client(channel, "other")
    for caller in (client, other):
        assert (await caller.create(session_id="s1", request_id="r1")).session_id == "s1"
    await client.create(session_id="s2")
    with pytest.raises(MoorageError) as refusal:
        await other.get("s2")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_SESSION_NOT_FOUND


@pytest.mark.parametrize("session_id", ["", "s1"], ids=["minted id", "chosen id"])
async def test_the_same_request_in_the_same_instant_makes_one_session(
    replica: SessionReplica, places: Places, session_id: str
) -> None:
    async with running_session(places) as second:
        channels = [open_channel(each.endpoint) for each in (replica, second)]
        callers = [Client(channel) for channel in channels for _ in range(3)]
        made = await asyncio.gather(
            *(
                caller.create(session_id=session_id, request_id="r1", provision=provision_pb2.ProvisionSpec())
                for caller in callers
            )
        )
        for channel in channels:
            await channel.close()
    assert len({(session.session_id, session.workspace.workspace_id) for session in made}) == 1
    assert (await counts(places.database_url))["sessions"] == 1
    kept = [name for name, state in (await workspaces(places.database_url)).items() if "DELET" not in state]
    assert kept == [made[0].workspace.workspace_id]


async def test_waiting_ends_when_the_caller_would_give_up(client: Client, places: Places) -> None:
    wish = {"request_id": "r1", "provision": provision_pb2.ProvisionSpec()}
    await client.create(wait_ready=True, **wish)
    await unfinish(places.database_url)
    again = await client.with_patience(1.5).create(wait_ready=True, **wish)
    assert again.workspace.state == "PROVISIONING"


async def unfinish(database_url: str) -> None:
    """Put the workspaces back to where their instance has not got to them."""
    await execute(
        database_url,
        """
        UPDATE workspace.workspaces SET state = 'PROVISIONING',
            due_at = clock_timestamp() + interval '1 h', deadline = clock_timestamp() + interval '1 h'
        """,
    )
