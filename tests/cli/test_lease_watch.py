"""`moorage lease watch` while the owner goes away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.cli.database import DatabaseAddress
from services.cli.ports import choose
from services.cli.stack import PORTS, StackOptions, service_specs
from services.cli.state import Running
from services.cli.supervisor import ServiceFailed, Supervisor
from services.common.channels import open_channel
from tests.cli.programs import Place

pytestmark = pytest.mark.timeout(120)

RESOURCE = "runners/outlives"


async def acquired(address: str, holder: str, resource: str) -> int:
    """Somebody takes a lease that outlasts the test; gives the token."""
    request = lease_pb2.AcquireLeaseRequest(resource=resource, holder=holder, request_id=holder)
    request.labels["role"] = "runner"
    request.ttl.FromSeconds(600)
    async with open_channel(address) as channel:
        return (await LeaseServiceStub(channel).AcquireLease(request)).lease.token


async def released(address: str, holder: str, resource: str, token: int) -> None:
    """And gives it back."""
    request = lease_pb2.ReleaseLeaseRequest(resource=resource, holder=holder, token=token)
    async with open_channel(address) as channel:
        await LeaseServiceStub(channel).ReleaseLease(request)


async def test_it_goes_on_after_an_outage_and_misses_no_change(place: Place, database_url: str) -> None:
    options = StackOptions(place.work, place.state_home / "owner")
    where = Running(0, str(place.work), "", **choose(PORTS, dict.fromkeys(PORTS, "127.0.0.1:0")))
    [owner] = [
        each for each in service_specs(options, where, DatabaseAddress(database_url)) if each.name == "owner"
    ]
    async with Supervisor(options.logs) as running:
        await running.start(owner)
        await running.wait_ready()
        token = await acquired(where.owner, "before/1", RESOURCE)
        watch = place.start("lease", "watch", "--owner-address", where.owner, "--every", "0.1", "--json")
        seen = await asyncio.to_thread(watch.document)
        assert (seen["resource"], seen["holder"], seen["live"]) == (RESOURCE, "before/1", True)

        os.kill(running.pids[0], signal.SIGKILL)
        assert "lost the owner service" in await asyncio.to_thread(watch.told)
        with contextlib.suppress(ServiceFailed):
            await running.wait_failure()
        await running.stop()
        await running.start(owner)
        await running.wait_ready()

        await acquired(where.owner, "other/1", "runners/new")
        seen = await asyncio.to_thread(watch.document)
        assert (seen["resource"], seen["live"]) == ("runners/new", True)
        await released(where.owner, "before/1", RESOURCE, token)
        seen = await asyncio.to_thread(watch.document)
        assert (seen["resource"], seen["holder"], seen.get("live", False)) == (RESOURCE, "before/1", False)
        watch.signal(signal.SIGINT)
        assert (await asyncio.to_thread(watch.ended))[0] == 130
