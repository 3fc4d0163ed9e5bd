"""What is in containers at first, and the command that prepares them (W10)."""

from __future__ import annotations

from pathlib import Path

from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from tests.conditions import eventually
from tests.workspace.docker.yard import Yard, make
from tests.workspace.instances import Client
from tests.workspace.sources.archives import Entry, tar
from tests.workspace.sources.wishes import FAILED, READY, of_archive

Setup = provision_pb2.SetupCommand
NONE, BRIDGE = provision_pb2.NETWORK_POLICY_NONE, provision_pb2.NETWORK_POLICY_BRIDGE
FILES = of_archive(data=tar([Entry("a/b", content=b"deep"), Entry("run", content=b"#!", mode=0o755)]))


def shell(script: str, **wish: object) -> provision_pb2.SetupCommand:
    return Setup(command=["sh", "-c", script], **wish)  # type: ignore[arg-type]


async def test_files_belong_to_whom_the_processes_are(client: Client, yard: Yard) -> None:
    setup = shell(
        "id -u; id -g; cat a/b; echo; stat -c '%u:%g %a' . a a/b run; echo more >> a/b; touch made; env"
    )
    workspace = await make(client, setup=setup, **FILES)
    assert workspace.state == READY, workspace.state_reason
    uid, gid, content, *rest = workspace.setup.output.splitlines()
    assert uid != "0"
    assert content == "deep"
    assert rest[:4] == [f"{uid}:{gid} {mode}" for mode in ("700", "755", "644", "755")]
    assert {line.partition("=")[0] for line in rest[4:]} <= {"PATH", "HOME", "MOORAGE_EXEC", "PWD", "SHLVL"}
    assert (yard.directory() / "a" / "b").read_text() == "deepmore\n"
    assert (yard.directory() / "made").stat().st_uid == int(uid)


async def test_a_failed_command_is_told_and_leaves_nothing(client: Client, yard: Yard) -> None:
    """At once, and not by the next pass of the collector: it counts against no quota any more."""
    workspace = await make(client, setup=shell("echo no room; exit 3"))
    assert (workspace.state, workspace.state_reason) == (FAILED, "its set-up command ended with 3: no room")
    assert workspace.setup.ended == workspace_pb2.ExecEnded(exit_code=3)

    async def none_left() -> bool:
        return await yard.containers() == [] and not yard.directory().exists()

    await eventually(none_left, what="container and directory are gone")


async def test_a_command_may_reach_what_later_ones_may_not(client: Client, yard: Yard) -> None:
    setup = shell("ls /sys/class/net", network=BRIDGE)
    workspace = await make(client, network=NONE, setup=setup)
    assert workspace.state == READY, workspace.state_reason
    assert workspace.setup.output.split() == ["eth0", "lo"]
    assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == ["none"]


async def test_a_command_may_reach_less(client: Client, yard: Yard) -> None:
    workspace = await make(client, network=BRIDGE, setup=shell("ls /sys/class/net", network=NONE))
    assert workspace.state == READY, workspace.state_reason
    assert workspace.setup.output.split() == ["lo"]
    assert list((await yard.inspect())["NetworkSettings"]["Networks"]) == ["bridge"]


async def test_a_directory_is_used_where_it_is(client: Client, yard: Yard) -> None:
    supplied = yard.machine.supplied("code")
    (supplied / "file").write_text("theirs")
    supplied.chmod(0o777)
    path = provision_pb2.PathSource(directory=str(supplied))
    source = provision_pb2.WorkspaceSource(path=path)
    workspace = await make(client, source=source, setup=shell("pwd; cat file; touch made"))
    assert workspace.state == READY, workspace.state_reason
    assert workspace.setup.output == f"{supplied}\ntheirs"
    await client.delete()
    assert (await client.settled()).state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert sorted(each.name for each in Path(supplied).iterdir()) == ["file", "made"]


async def test_a_command_that_takes_all_memory(client: Client) -> None:
    """Of 64 MiB."""
    workspace = await make(client, setup=shell("head -c 200m /dev/zero | tail -c 199m > /dev/null"))
    assert workspace.state == FAILED
    assert workspace.setup.ended.out_of_memory
    assert "as memory was used up" in workspace.state_reason
