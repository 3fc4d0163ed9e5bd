"""What containers have of the instance: the helper, which nobody inside can change, and a home of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

from services.common.errors import Unavailable
from services.workspace.docker import containers
from services.workspace.docker.containers import Places, User, Wanted
from services.workspace.docker.engine import Engine
from services.workspace.docker.equipment import Equipment, is_there, place
from services.workspace.docker.exec.helper import HELPER_PATH
from services.workspace.docker.ground import Ground
from services.workspace.docker.labels import Labels
from services.workspace.providers.registry import Unusable
from services.workspace.specs import Spec
from tests.conditions import eventually
from tests.engines import BUSYBOX
from tests.workspace.docker.yard import Yard, make
from tests.workspace.instances import PROJECT, Client, Holder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "helper" / "one"


def test_a_helper_is_there_whole_for_who_executes_it(directory: Path) -> None:
    placed = place(str(directory), b"first")
    helper = directory / "exec"
    assert (helper.read_bytes(), stat.S_IMODE(helper.stat().st_mode)) == (b"first", 0o111)
    assert is_there(str(directory), placed)
    # Who is on this machine and not in a container does not get there.
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"", b"older", b"newer than it"])
def test_another_helper_is_replaced_as_a_whole(directory: Path, content: bytes) -> None:
    place(str(directory), content)
    (directory / "exec.of-a-start-that-died").touch()
    with (directory / "exec").open("rb") as running:
        place(str(directory), b"newer")
        assert running.read() == content
    assert [path.name for path in directory.iterdir()] == ["exec"]
    assert (directory / "exec").read_bytes() == b"newer"


@pytest.mark.parametrize("change", ["content", "mode", "replaced", "link", "removed", "closed", "owner"])
def test_a_helper_that_is_not_as_it_was_placed_is_noticed_and_replaced(
    directory: Path, tmp_path: Path, change: str
) -> None:
    placed, helper = place(str(directory), b"program"), directory / "exec"
    (tmp_path / "elsewhere").write_bytes(b"program")
    match change:
        case "content":
            # As a backup would put it back, with the date that it had.
            dates = helper.stat().st_atime_ns, helper.stat().st_mtime_ns
            helper.write_bytes(b"PROGRAM")
            os.utime(helper, ns=dates)
        case "mode":
            helper.chmod(0o755)
        case "replaced":
            (directory / "another").write_bytes(b"program")
            (directory / "another").rename(helper)
        case "link":
            helper.unlink()
            helper.symlink_to(tmp_path / "elsewhere")
        case "removed":
            helper.unlink()
        case "closed":
            directory.chmod(0o700)
        case "owner":
            os.chown(helper, 10001, 10001)
    assert not is_there(str(directory), placed)
    assert is_there(str(directory), place(str(directory), b"program"))
    assert not helper.is_symlink()
    assert (tmp_path / "elsewhere").stat().st_mode & 0o111 == 0


async def test_whoever_goes_away_disturbs_nobody_who_has_the_helper_placed_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, asked = threading.Event(), threading.Event(), []

    def slow(architecture: str) -> bytes:
        asked.append(architecture)
        begun.set()
        assert goes_on.wait(30)
        return b"program"

    monkeypatch.setattr("services.workspace.docker.equipment.helper_program", slow)
    equipment = Equipment(str(directory))
    first = asyncio.create_task(equipment.ready())
    await asyncio.to_thread(begun.wait, 30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(equipment.ready())
    goes_on.set()
    await second
    assert (directory / "exec").read_bytes() == b"program"
    assert len(asked) == 1, "what the first one had begun is what there is"


def test_an_error_names_the_directory(directory: Path) -> None:
    directory.parent.mkdir(parents=True)
    directory.write_text("in the way")
    with pytest.raises(OSError, match=str(directory)):
        place(str(directory), b"program")


def test_nothing_is_made_where_no_helper_could_be_executed(tmp_path: Path) -> None:
    """Containers would be made, and none would start."""
    ground = Ground("bridge", str(tmp_path / "not" / "there"), User(1, 1), "one")
    assert not ground.barred()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(tmp_path)], check=True)
    try:
        assert "noexec" in ground.barred()
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


async def test_an_engine_that_sees_other_directories_says_what_is_wrong(yard: Yard) -> None:
    engine = Engine(yard.address, threads=1, timeout=30.0)
    labels = Labels("d", yard.machine.instance_id, PROJECT, "unseen", 1)
    places = Places(*(f"{yard.machine.state}/nobody-made-this/{name}" for name in ("root", "home", "helper")))
    wanted = Wanted(labels, Spec(image=BUSYBOX), "none", places, User(10001, 10001))
    with pytest.raises(Unusable, match=r"at the same paths: .*nobody-made-this"):
        await engine.call(partial(containers.create, wanted))
    engine.close()


async def test_nobody_inside_can_change_the_helper(client: Client, yard: Yard, holder: Holder) -> None:
    await make(client)
    grant = await holder.acquire()
    helper = yard.helper / "exec"
    before = helper.read_bytes()
    # Nothing but the mount is in their way.
    for path in (yard.helper, helper):
        os.chown(path, 10001, 10001)
    for forbidden in (
        f"echo x > {HELPER_PATH}",
        f"chmod 777 {HELPER_PATH}",
        f"rm -f {HELPER_PATH}",
        f"mv {HELPER_PATH} /tmp",
        "touch /.moorage/more",
        "echo x > /proc/1/exe",
        "mount -o remount,rw /.moorage",
    ):
        ran = await client.exec(grant, "sh", "-c", forbidden).run()
        assert ran.how != ("exit_code", 0), forbidden
    options = await client.exec(grant, "sh", "-c", "grep ' /.moorage ' /proc/self/mounts").run()
    assert "ro" in options.stdout.decode().split(" ")[3].split(",")
    assert helper.read_bytes() == before
    assert [path.name for path in helper.parent.iterdir()] == ["exec"]


async def test_containers_that_run_get_the_helper_of_a_newer_start(yard: Yard, holder: Holder) -> None:
    """The one they have speaks another protocol, perhaps, and ends nothing of what is to be ended."""
    async with yard.running() as (client, _):
        await make(client)
    _replace_helper(yard, "#!/bin/sh\necho $@ >> /home/moorage/asked\n")
    async with yard.running() as (client, _):
        grant = await holder.acquire()
        assert (await client.exec(grant, "echo", "new").run()).stdout == b"new\n"
    assert not (yard.directory().with_name("w1.home") / "asked").exists()


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 1\n"])
async def test_a_helper_that_goes_while_the_instance_serves_comes_back(
    client: Client, yard: Yard, holder: Holder, program: str
) -> None:
    await make(client)
    grant = await holder.acquire()
    await client.exec(grant, "true").run()
    if program:
        _replace_helper(yard, program)
    else:
        (yard.helper / "exec").unlink()
    before = (await yard.inspect())["State"]["StartedAt"]
    with contextlib.suppress(Unavailable):
        await client.exec(grant, "true").run()
    assert (await client.exec(grant, "echo", "again").run()).stdout == b"again\n"
    assert (await yard.inspect())["State"]["StartedAt"] == before


async def test_a_container_whose_mount_is_gone_is_started_over_the_new_one(
    client: Client, yard: Yard, holder: Holder
) -> None:
    """As when the state directory is put back below containers that run."""
    await make(client)
    grant = await holder.acquire()
    shutil.rmtree(yard.helper)
    error = await client.exec(grant, "true").refusal()
    assert error.reason_name == "DEPENDENCY_UNAVAILABLE"
    assert (await client.exec(grant, "echo", "again").run()).stdout == b"again\n"


async def test_a_container_without_the_mount_says_what_is_to_be_done(
    client: Client, yard: Yard, holder: Holder
) -> None:
    """As one that another version has made."""
    await make(client)
    made = await yard.inspect()
    await yard.ask("remove_container", made["Id"], force=True)
    await yard.ask(
        "create_container",
        BUSYBOX,
        name=made["Name"].strip("/"),
        labels=made["Config"]["Labels"],
        entrypoint=["sleep", "600"],
    )
    await yard.ask("start", made["Name"].strip("/"))
    error = await client.exec(await holder.acquire(), "true").refusal()
    assert (error.reason_name, error.metadata["state"]) == ("WORKSPACE_NOT_READY", "READY")
    assert "make another one" in str(error)
    assert (await yard.inspect())["State"]["Running"]


def _replace_helper(yard: Yard, program: str) -> None:
    helper = yard.helper / "exec"
    helper.unlink()
    helper.write_text(program)
    helper.chmod(0o555)


async def test_home_outlives_a_stop_and_goes_with_the_workspace(
    client: Client, yard: Yard, holder: Holder
) -> None:
    """Agents keep their sessions there."""
    await make(client)
    home = yard.directory().with_name("w1.home")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    grant = await holder.acquire()
    await client.exec(grant, "sh", "-c", "echo kept > /home/moorage/memory").run()
    await yard.ask("kill", (await yard.inspect())["Id"])
    await eventually(lambda: _stopped(yard), what="it is stopped")
    ran = await client.exec(grant, "cat", "/home/moorage/memory").run()
    assert ran.stdout == b"kept\n"
    await client.delete()
    await client.settled()
    assert not any((yard.machine.state / PROJECT).iterdir())


async def _stopped(yard: Yard) -> bool:
    return not (await yard.inspect())["State"]["Running"]
