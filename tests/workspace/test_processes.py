"""Real processes of the service, killed and ended: nothing they started outlives them (F6, F11)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc
import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.processes import is_alive, mentioning, parent_of
from tests.workspace.real import ServiceProcess, started

FAMILY = """
echo $$ >> pids; sleep 600 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 600' &
setsid env -i sh -c 'echo $$ >> pids; exec /bin/sleep 600' &
wait
"""
# Who kills an instance waits for the end of its lease.
SHORT_LEASE = ("--lease-ttl", "4")
READY = workspace_pb2.WORKSPACE_STATE_READY
DELETED = workspace_pb2.WORKSPACE_STATE_DELETED


async def grown(machine: Machine) -> list[int]:
    path = machine.supplied() / "pids"
    await eventually(lambda: path.exists() and len(path.read_text().split()) == 4, what="four processes")
    return [int(line) for line in path.read_text().split()]


async def test_a_killed_instance_takes_its_processes_along(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY):
            pids = await grown(machine)
            await service.kill()
            await eventually(lambda: not any(map(is_alive, pids)), what="all dead")
            await eventually(lambda: not mentioning(f"/{machine.instance_id}/"), what="no shim is left")
        await client.channel.close()


async def test_a_successor_kills_what_its_predecessor_left_before_it_serves(
    machine: Machine, holder: Holder
) -> None:
    async with started(machine, *SHORT_LEASE) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY) as stream:
            pids = await grown(machine)
            # Everything that would clean up is killed, and nobody is awake to notice.
            os.kill(service.pid, signal.SIGSTOP)
            shim = parent_of(stream.pid)
            for pid in (parent_of(shim), shim):
                os.kill(pid, signal.SIGKILL)
            await service.kill()
        await client.channel.close()
        left = [pid for pid in mentioning(f"/{machine.instance_id}/") if pid in pids]
        assert left
        async with started(machine) as successor:
            await (await successor.client()).channel.close()
            assert not any(map(is_alive, left))
            assert "killed what the predecessor left" in successor.events()
        # Nobody but its shim could know of the one that cleared its environment.
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


async def test_shims_that_were_stopped_are_woken_up_to_clean_up(machine: Machine, holder: Holder) -> None:
    async with started(machine, *SHORT_LEASE) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY) as stream:
            pids = await grown(machine)
            for pid in (shim := parent_of(stream.pid), parent_of(shim)):
                os.kill(pid, signal.SIGSTOP)
            await service.kill()
        await client.channel.close()
        assert all(map(is_alive, pids))
        async with started(machine) as successor:
            await (await successor.client()).channel.close()
            assert not any(map(is_alive, (*pids, shim)))


async def test_shims_that_live_are_asked_first(machine: Machine, holder: Holder) -> None:
    async with started(machine, *SHORT_LEASE) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY):
            pids = await grown(machine)
            # Paused, as a machine that is suspended: its lease passes, its shims notice nothing.
            os.kill(service.pid, signal.SIGSTOP)
            async with started(machine) as successor:
                await (await successor.client()).channel.close()
                assert not any(map(is_alive, pids))
        await client.channel.close()


async def test_another_instance_is_left_alone(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY):
            pids = await grown(machine)
            async with started(machine, "--instance-id", "two") as other:
                await (await other.client()).channel.close()
                assert "killed what the predecessor left" not in other.events()
                assert all(map(is_alive, pids))
        await client.channel.close()


async def test_terminating_leaves_nothing_behind(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "sh", "-c", FAMILY) as stream:
            pids = await grown(machine)
            ending = asyncio.create_task(service.terminate())
            error = (await stream.result()).error
            assert error is not None
            assert error.reason_name == "SHUTTING_DOWN"
            assert not any(map(is_alive, pids))
            assert await ending == 0
            assert not mentioning(f"/{machine.instance_id}/")
        await client.channel.close()
        # The lease was given back, so that nobody has to wait for its end.
        async with started(machine, "--lease-ttl", "60") as successor:
            await (await successor.client()).channel.close()


async def test_a_caller_that_does_not_read_holds_up_no_end(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        async with client.exec(await holder.acquire(), "yes") as stream:
            async with asyncio.timeout(15):
                assert await service.terminate() == 0
            assert not is_alive(stream.pid)
        await client.channel.close()


@pytest.mark.parametrize("point", ["workspace.provision.before_make", "workspace.provision.after_make"])
async def test_killed_while_it_makes_a_workspace(machine: Machine, point: str) -> None:
    async with started(machine, *SHORT_LEASE, MOORAGE_FAILPOINTS=f"{point}=kill") as service:
        client = await service.client()
        await client.provision(provision=provision_pb2.ProvisionSpec())
        assert await service.process.wait() == -signal.SIGKILL
        await client.channel.close()
    async with started(machine) as successor:
        client = await successor.client()
        assert (await client.settled()).state == READY
        assert (machine.state / "default" / "w1").is_dir()
        await client.channel.close()


@pytest.mark.parametrize("point", ["workspace.remove.before_remove", "workspace.remove.after_remove"])
async def test_killed_while_it_removes_a_workspace(machine: Machine, point: str) -> None:
    async with started(machine, *SHORT_LEASE, MOORAGE_FAILPOINTS=f"{point}=kill") as service:
        client = await service.client()
        root = Path((await client.make()).root)
        await client.delete()
        assert await service.process.wait() == -signal.SIGKILL
        await client.channel.close()
    async with started(machine) as successor:
        client = await successor.client()
        assert (await client.settled()).state == DELETED
        assert not root.exists()
        await client.channel.close()


async def test_memory_stays_flat(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        grant = await holder.acquire()
        await client.exec(grant, "head", "-c", "20000000", "/dev/zero").run()
        before = _resident(service)
        async with client.exec(grant, "head", "-c", "80000000", "/dev/zero") as stream:
            size = peak = 0
            while (message := await stream.read()) is not None:
                size += len(message.stdout)
                peak = max(peak, _resident(service)) if not size % (1 << 20) else peak
        assert size == 80_000_000
        assert max(peak, _resident(service)) - before < 20_000_000
        await client.channel.close()


async def test_a_client_that_is_killed_takes_its_processes_along(machine: Machine, holder: Holder) -> None:
    async with started(machine) as service:
        client = await service.client()
        await client.adopt(machine.supplied())
        grant = await holder.acquire()
        child = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "tests.workspace.lonely",
                await service.endpoint(),
                grant.SerializeToString().hex(),
            ),
            FAMILY,
        )
        pids = await grown(machine)
        child.kill()
        await child.wait()
        await eventually(lambda: not any(map(is_alive, pids)), what="all dead")
        await client.channel.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--root", "/no/such/place"), "--root: /no/such/place is not a directory"),
        (("--default-directory", "relative"), "must be an absolute path"),
        (("--default-directory", "/"), "lies outside --root"),
        (("--instance-id", "a b"), "--instance-id"),
        (("--lease-ttl", "1"), "--lease-ttl"),
        (("--first-retry", "0"), "--first-retry"),
    ],
)
async def test_bad_settings_end_it_at_once(machine: Machine, flags: tuple[str, ...], words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.workspace", *flags),
        env={**os.environ, "MOORAGE_DATABASE_URL": machine.database_url},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert words in stderr.decode()
    assert stderr.count(b"\n") == 1


async def test_without_owner_it_is_not_ready_and_starts_nothing(machine: Machine, holder: Holder) -> None:
    grant = await holder.acquire()
    async with started(machine, MOORAGE_OWNER_ADDRESS="127.0.0.1:9") as service:
        endpoint = await service.endpoint()
        async with grpc.aio.insecure_channel(endpoint) as channel:
            client = Client(channel)
            refusal = await client.exec(grant, "true").refusal()
            assert refusal.reason_name == "DEPENDENCY_UNAVAILABLE"


async def test_a_wrong_schema_is_refused(machine: Machine, empty_database_url: str) -> None:
    async with started(machine, MOORAGE_DATABASE_URL=empty_database_url) as service:
        assert await service.process.wait() == 1
        assert service.events()[-1].startswith(
            "refused to start: the schema workspace is not in the database"
        )


async def test_a_database_that_is_away_is_waited_for(machine: Machine) -> None:
    async with started(machine, MOORAGE_DATABASE_URL="postgresql://nobody@127.0.0.1:9/none") as service:
        await service.endpoint()
        await eventually(lambda: "holding the instance's lease failed" in service.events(), within=20)
        assert await service.terminate() == 0
        assert not [line for line in service.lines if "exception" in line]


def _resident(service: ServiceProcess) -> int:
    pages = int(Path(f"/proc/{service.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
