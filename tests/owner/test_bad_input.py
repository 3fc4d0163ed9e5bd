"""Bad input is refused before anything happens, and the field is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.common.errors import InvalidArgument
from services.common.status import from_rpc_error
from services.owner.config import OwnerSettings
from tests.owner.replicas import RUNNER, SERVICE, Holder, replica

GOOD: dict[str, Any] = {"resource": "runners/a", "holder": "alice/1", "labels": RUNNER}


def _renewing(*items: tuple[str, int]) -> lease_pb2.RenewLeasesRequest:
    renewals = [lease_pb2.LeaseRenewal(resource=name, token=token) for name, token in items]
    return lease_pb2.RenewLeasesRequest(holder="a/1", renewals=renewals)


ACQUIRE: list[tuple[str, dict[str, Any]]] = [
    ("resource", {"resource": ""}),
    ("resource", {"resource": "a" * 401}),
    ("resource", {"resource": "runners/ä"}),
    ("resource", {"resource": "runners/a b"}),
    ("resource", {"resource": "runners/a\n"}),
    ("resource", {"resource": "runners/%"}),
    ("holder", {"holder": ""}),
    ("holder", {"holder": "alice"}),
    ("holder", {"holder": "alice/"}),
    ("holder", {"holder": "/1"}),
    ("holder", {"holder": "alice/1/2"}),
    ("holder", {"holder": f"{'a' * 129}/1"}),
    ("ttl", {"ttl": Duration(seconds=1, nanos=999_000_000)}),
    ("ttl", {"ttl": Duration(seconds=3600, nanos=1_000_000)}),
    ("ttl", {"ttl": Duration(seconds=-5)}),
    ("ttl", {"ttl": Duration(seconds=315_576_000_000)}),
    ("ttl", {"ttl": Duration()}),
    ("endpoint", {"endpoint": "localhost"}),
    ("endpoint", {"endpoint": "localhost:0"}),
    ("endpoint", {"endpoint": "localhost:65536"}),
    ("endpoint", {"endpoint": "http://localhost:1"}),
    ("endpoint", {"endpoint": "a b:1"}),
    ("endpoint", {"endpoint": f"{'a' * 255}:1"}),
    ("labels[role]", {"labels": {}}),
    ("labels[role]", {"labels": {"role": "captain"}}),
    ("labels[role]", {"labels": {"role": ""}}),
    ("labels", {"labels": {**RUNNER, **{f"k{number}": "" for number in range(40)}}}),
    ("labels", {"labels": {**RUNNER, "k" * 64: ""}}),
    ("labels[k]", {"labels": {**RUNNER, "k": "v" * 1025}}),
    ("labels[k]", {"labels": {**RUNNER, "k": "a\0b"}}),
    ("request_id", {"request_id": "r" * 256}),
    ("request_id", {"request_id": "a\0b"}),
    ("takeover_token", {"takeover_token": 1}),
    ("takeover_token", {"takeover_token": -1, "labels": SERVICE}),
]
OTHERS: list[tuple[str, str, Any]] = [
    ("RenewLeases", "holder", lease_pb2.RenewLeasesRequest(holder="x")),
    ("RenewLeases", "renewals[1].resource", _renewing(("r", 1), ("", 1))),
    ("RenewLeases", "renewals[1].token", _renewing(("r", 1), ("s", 0))),
    ("ReleaseLease", "resource", lease_pb2.ReleaseLeaseRequest(holder="a/1", token=1)),
    ("ReleaseLease", "holder", lease_pb2.ReleaseLeaseRequest(resource="r", token=1)),
    ("ReleaseLease", "token", lease_pb2.ReleaseLeaseRequest(resource="r", holder="a/1")),
    ("ReleaseLease", "token", lease_pb2.ReleaseLeaseRequest(resource="r", holder="a/1", token=-1)),
    ("GetLease", "resource", lease_pb2.GetLeaseRequest(resource="r'")),
    ("ListLeases", "prefix", lease_pb2.ListLeasesRequest(prefix="runners/%")),
    ("ListLeases", "page_size", lease_pb2.ListLeasesRequest(page_size=-1)),
    ("ListLeases", "page_token", lease_pb2.ListLeasesRequest(page_token="nonsense")),
]


async def test_acquire(strict_channel: grpc.aio.Channel) -> None:
    requests = [
        ("AcquireLease", field, lease_pb2.AcquireLeaseRequest(**{**GOOD, **change}))
        for field, change in ACQUIRE
    ]
    assert await _wrong_answers(strict_channel, requests) == []
    assert not (await Holder(strict_channel, "a/1").list_leases()).leases


async def test_other_calls(strict_channel: grpc.aio.Channel) -> None:
    assert await _wrong_answers(strict_channel, OTHERS) == []


async def test_good_endpoints(alice: Holder) -> None:
    endpoints = ("localhost:1", "10.0.0.1:65535", "[::1]:7803", "runner-1.runners.svc:7803", "")
    for number, endpoint in enumerate(endpoints):
        assert (await alice.acquire(f"runners/{number}", endpoint=endpoint)).lease.endpoint == endpoint


async def test_the_longest_names_are_taken(alice: Holder) -> None:
    resource = "a/" * 200
    response = await alice.acquire(
        resource, labels={"role": "runner", "k" * 63: "v" * 1024}, request_id="r" * 255
    )
    assert response.lease.resource == resource
    assert [lease.resource for lease in (await alice.list_leases(resource)).leases] == [resource]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"min_ttl": 20.0}, "--default-ttl"),
        ({"max_ttl": 10.0}, "--max-ttl"),
        ({"key_lifetime": 7200.0}, "--key-lifetime"),
    ],
)
def test_settings_that_contradict_each_other(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        OwnerSettings(database_url="postgresql://x/y", **change)


@pytest.fixture
async def strict_channel(database_url: str) -> AsyncIterator[grpc.aio.Channel]:
    """To a replica with the limits of production."""
    async with replica(database_url, min_ttl=2.0) as channel:
        yield channel


async def _wrong_answers(channel: grpc.aio.Channel, requests: Sequence[tuple[str, str, Any]]) -> list[str]:
    """What was answered otherwise than by naming the field."""
    answers = [
        (field, await _fields_named(channel, method, request), request) for method, field, request in requests
    ]
    return [f"{named} instead of {field}: {request}" for field, named, request in answers if named != [field]]


async def _fields_named(channel: grpc.aio.Channel, method: str, request: Any) -> list[str]:
    try:
        await getattr(LeaseServiceStub(channel), method)(request)
    except grpc.aio.AioRpcError as caught:
        error = from_rpc_error(caught)
        assert isinstance(error, InvalidArgument)
        assert error.reason_name == "INVALID_FIELD"
        return [violation.field for violation in error.violations]
    return []
