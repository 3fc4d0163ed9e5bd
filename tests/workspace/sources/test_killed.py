"""The service is killed while it fills and prepares a workspace: its successor begins anew, and no half tree is READY."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from moorage.common.v1 import provision_pb2

from tests.conditions import eventually
from tests.workspace.instances import Machine
from tests.workspace.real import started
from tests.workspace.sources.archives import Entry, tar
from tests.workspace.sources.servers import Site
from tests.workspace.sources.wishes import READY, of_archive

SHORT_LEASE = ("--lease-ttl", "4")
DATA = tar([Entry("a", content=b"whole")])


async def test_while_it_fetches(machine: Machine, site: Site) -> None:
    flags = (*SHORT_LEASE, "--source-hosts", json.dumps([site.host]))
    async with started(machine, *flags) as service:
        client = await service.client()
        spec = provision_pb2.ProvisionSpec(**of_archive(url=site.url("/hang")))
        root = Path((await client.provision(provision=spec)).workspace.root)
        await asyncio.to_thread(site.hung.wait)
        [place] = root.iterdir()
        await service.kill()
        await client.channel.close()
    site.files["/hang"] = DATA
    async with started(machine, *flags) as successor:
        client = await successor.client()
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert [each.name for each in root.iterdir()] == ["a"]
        assert not place.exists()
        await client.channel.close()


async def test_when_the_source_is_there(machine: Machine) -> None:
    point = "workspace.provision.after_fill"
    script = "test ! -e mark && touch mark && cat a"
    setup = provision_pb2.SetupCommand(command=["sh", "-c", script])
    async with started(machine, *SHORT_LEASE, MOORAGE_FAILPOINTS=f"{point}=kill") as service:
        client = await service.client()
        spec = provision_pb2.ProvisionSpec(setup=setup, **of_archive(data=DATA))
        root = Path((await client.provision(provision=spec)).workspace.root)
        assert await service.process.wait() == -signal.SIGKILL
        await client.channel.close()
    assert (root / "a").exists()
    (root / "half").touch()
    async with started(machine) as successor:
        client = await successor.client()
        workspace = await client.settled()
        assert (workspace.state, workspace.setup.output) == (READY, "whole"), workspace.state_reason
        assert sorted(each.name for each in root.iterdir()) == ["a", "mark"]
        await client.channel.close()


async def test_while_the_command_runs(machine: Machine) -> None:
    """It is dead before the successor runs it again, on what the source gives."""
    script = "test ! -e mark && echo $$ > mark && (test -e ../../go || sleep 1000)"
    setup = provision_pb2.SetupCommand(command=["sh", "-c", script])
    async with started(machine, *SHORT_LEASE) as service:
        client = await service.client()
        spec = provision_pb2.ProvisionSpec(setup=setup, **of_archive(data=DATA))
        mark = Path((await client.provision(provision=spec)).workspace.root, "mark")
        await eventually(lambda: mark.exists() and mark.read_text() != "", what="it runs")
        first = mark.read_text().strip()
        await service.kill()
        await client.channel.close()
    (machine.state / "go").touch()
    async with started(machine) as successor:
        client = await successor.client()
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert not Path("/proc", first).exists()
        assert mark.read_text().strip() != first
        await client.channel.close()
