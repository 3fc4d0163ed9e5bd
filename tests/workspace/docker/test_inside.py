"""What a workspace's processes can do, and what they cannot, as commands run there find (W5)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator

import pytest
from moorage.common.v1 import provision_pb2
from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.provision_pb2 import ResourceLimits, SetupCommand

from tests.workspace.docker.yard import Yard, make
from tests.workspace.filing import Files
from tests.workspace.instances import Client, Holder
from tests.workspace.streams import Result

BRIDGE = provision_pb2.NETWORK_POLICY_BRIDGE
MEBIBYTE = 1024 * 1024


class Inside:
    """Runs shell commands in the workspace w1."""

    def __init__(self, client: Client, grant: Grant) -> None:
        self._client = client
        self._grant = grant

    async def run(self, script: str) -> Result:
        return await self._client.exec(self._grant, "sh", "-c", script).run()

    async def says(self, script: str) -> str:
        result = await self.run(script)
        assert result.how == ("exit_code", 0), result
        return result.stdout.decode().strip()


@pytest.fixture
async def inside(client: Client, holder: Holder) -> Inside:
    """A workspace with the instance's limits and no network."""
    await make(client)
    return Inside(client, await holder.acquire())


async def test_nobody_has_rights_or_gets_any(inside: Inside) -> None:
    status = dict(line.split(":\t", 1) for line in (await inside.says("cat /proc/self/status")).splitlines())
    rights = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert not any(rights.values()), rights
    assert status["NoNewPrivs"] == "1"
    # A filter is in force: the engine's own.
    assert status["Seccomp"] == "2"
    assert 0 not in map(int, status["Uid"].split() + status["Gid"].split() + status["Groups"].split())
    for forbidden in (
        "mount -t tmpfs none /mnt",
        "chown 0 /tmp",
        "su -c true",
        "touch /etc/made",
        "mknod d b 8 0",
    ):
        assert (await inside.run(forbidden)).how != ("exit_code", 0), forbidden
    # The first process too is nobody's root.
    assert await inside.says("stat -c %u /proc/1") != "0"


async def test_no_socket_leads_out(inside: Inside) -> None:
    found = await inside.says("find / -xdev -type s 2>/dev/null; find / -name '*docker*' 2>/dev/null; true")
    # What the engine marks its containers with is an empty file.
    assert [line for line in found.splitlines() if not line.startswith(("/proc/", "/sys/"))] == [
        "/.dockerenv"
    ]


async def test_there_is_no_network(inside: Inside) -> None:
    assert await inside.says("ls /sys/class/net") == "lo"
    refused = await inside.run("nc -w 5 192.0.2.1 80")
    assert refused.how != ("exit_code", 0)
    assert b"unreachable" in refused.stderr


async def test_limits_are_in_force(client: Client, holder: Holder) -> None:
    await make(client, limits=ResourceLimits(cpus=0.5, memory_bytes=32 * MEBIBYTE, pids=24))
    inside = Inside(client, await holder.acquire())
    assert await inside.says(_cgroup("memory/memory.limit_in_bytes", "memory.max")) == str(32 * MEBIBYTE)
    assert await inside.says(_cgroup("pids/pids.max", "pids.max")) == "24"
    quota = (await inside.says(_cgroup("cpu/cpu.cfs_quota_us", "cpu.max"))).split()
    assert quota in (["50000"], ["50000", "100000"])
    # More processes than that cannot be: the shell says so, and not all of these run.
    crowd = await inside.run("for n in $(seq 60); do sleep 30 & done; wait -n; true")
    assert b"fork" in crowd.stderr


async def test_memory_that_is_used_up_ends_the_command(client: Client, holder: Holder) -> None:
    await make(client, limits=ResourceLimits(memory_bytes=32 * MEBIBYTE))
    inside = Inside(client, await holder.acquire())
    hungry = await inside.run("exec tail -c 100000000 /dev/zero")
    assert hungry.ended.out_of_memory
    assert hungry.how == ("signal", "SIGKILL")
    assert await inside.says("echo alive") == "alive"


async def test_home_and_tmp_can_be_written_to(inside: Inside) -> None:
    script = "cd $HOME && touch a && cd /tmp && touch b && printf 'exit 0' > c && chmod +x c && echo $HOME"
    names = ["HOME", "PATH"]
    result = await inside._client.exec(inside._grant, "sh", "-c", script, inherit_environment=names).run()
    assert (result.how, result.stdout) == (("exit_code", 0), b"/home/moorage\n")


async def test_nothing_of_the_instance_is_inherited(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_INSTANCE", "x")
    names = ["SECRET_OF_THE_INSTANCE", "PATH"]
    result = await inside._client.exec(inside._grant, "env", inherit_environment=names).run()
    variables = {line.partition("=")[0] for line in result.stdout.decode().splitlines()}
    assert variables == {"PATH", "MOORAGE_EXEC"}


async def test_both_sides_can_change_each_others_files(client: Client, yard: Yard, holder: Holder) -> None:
    await make(client)
    grant = await holder.acquire()
    inside, files = Inside(client, grant), Files(client, grant)
    await files.write("made/by/outside", b"one\n")
    owner = os.geteuid() or 10001
    for path in (yard.directory(), *yard.directory().rglob("*")):
        assert path.stat().st_uid == owner, path
    await inside.says("echo two >> made/by/outside; mkdir -m 700 own; echo mine > own/file")
    assert await files.read("made/by/outside") == b"one\ntwo\n"
    assert await files.read("own/file") == b"mine\n"
    await files.write("own/file", b"ours\n")
    assert await inside.says("cat own/file; rm -r own made; ls") == "ours"
    # Others on the machine do not get there.
    assert stat.S_IMODE(yard.machine.state.stat().st_mode) == 0o700


@pytest.fixture
async def beacon(yard: Yard) -> AsyncIterator[str]:
    """What greets at the machine's end of the engine's bridge: its address and port."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"reached")
        writer.close()
        await writer.wait_closed()

    (network,) = await yard.ask("networks", names=["^bridge$"])
    config = network["IPAM"]["Config"][0]
    gateway = config.get("Gateway") or str(config["Subnet"]).replace(".0.0/16", ".0.1")
    async with await asyncio.start_server(greet, gateway, 0) as server:
        yield "{} {}".format(*server.sockets[0].getsockname())


async def test_a_bridge_leads_to_the_machine(client: Client, holder: Holder, beacon: str) -> None:
    workspace = await make(client, network=BRIDGE)
    assert workspace.spec.network == BRIDGE
    assert await Inside(client, await holder.acquire()).says(f"nc -w 5 {beacon}") == "reached"


async def test_set_up_reaches_what_the_workspace_does_not(
    client: Client, holder: Holder, beacon: str
) -> None:
    setup = SetupCommand(
        command=["sh", "-c", f"nc -w 5 {beacon} > fetched"],
        environment={"PATH": "/bin"},
        network=BRIDGE,
    )
    workspace = await make(client, setup=setup)
    assert workspace.setup.ended.exit_code == 0, workspace
    inside = Inside(client, await holder.acquire())
    assert await inside.says("cat fetched") == "reached"
    assert await inside.says("ls /sys/class/net") == "lo"
    assert (await inside.run(f"nc -w 5 {beacon}")).how != ("exit_code", 0)


def _cgroup(first: str, second: str) -> str:
    """Reads a value of its control group, of either version."""
    return f"cd /sys/fs/cgroup; cat {first} 2>/dev/null || cat {second}"
