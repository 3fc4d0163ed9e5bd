"""An engine that hangs while a set-up command runs costs a repetition, not the workspace (W3, W10)."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common import failpoints
from tests.conditions import eventually
from tests.engines import PrivateEngine
from tests.gates import Gates
from tests.workspace.docker.cutting import cut_off
from tests.workspace.docker.yard import Yard
from tests.workspace.instances import Client
from tests.workspace.processes import appears, with_argument

pytestmark = pytest.mark.timeout(120)

PROVISIONING = workspace_pb2.WORKSPACE_STATE_PROVISIONING
READY = workspace_pb2.WORKSPACE_STATE_READY


@pytest.fixture
def tag() -> str:
    """For how long the command sleeps: no other does."""
    return f"6{secrets.randbelow(10**8):08}"


async def begun(client: Client, tag: str) -> None:
    """Return when a set-up command runs that sleeps, unless there is a file `go`."""
    script = f"echo begun >> runs; test -e go || sleep {tag}"
    setup = provision_pb2.SetupCommand(command=["sh", "-c", script])
    await client.provision(provision=provision_pb2.ProvisionSpec(provider="docker", setup=setup))
    await appears(tag, 1)


async def test_an_engine_paused_for_longer_than_the_lease(
    lonely_yard: Yard, engine: PrivateEngine, tag: str
) -> None:
    """The command ends with what was left of the lease, as nobody can tell it more."""
    async with lonely_yard.running(lease_ttl=3.0, docker_timeout=2.0) as (client, _):
        await begun(client, tag)
        engine.pause()
        await eventually(lambda: not with_argument(tag), within=30, what="the command is dead")
        assert (await client.get()).state == PROVISIONING
        (lonely_yard.directory() / "go").touch()
        engine.resume()
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert workspace.setup.ended == workspace_pb2.ExecEnded(exit_code=0)
        assert (lonely_yard.directory() / "runs").read_text() == "begun\nbegun\n"


@pytest.mark.parametrize("words", [b"", b"context canceled: the daemon is shutting down\r\n"])
async def test_an_engine_that_goes_before_the_command_has_begun(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: bytes
) -> None:
    """Whatever it says, it says nothing about the command."""
    monkeypatch.setitem(failpoints._active, failpoints.ALL, f"gate:{tmp_path}/gates")
    filled = Gates(tmp_path / "gates").hold("workspace.provision.after_fill")
    setup = provision_pb2.SetupCommand(command=["sh", "-c", "echo begun >> runs"])
    async with cut_off(yard.address) as cutter, Yard(yard.machine, cutter.address).running() as (client, _):
        await client.provision(provision=provision_pb2.ProvisionSpec(provider="docker", setup=setup))
        await filled.reached()
        cutter.armed, cutter.words = True, words
        filled.release()
        workspace = await client.settled()
        assert not cutter.armed
        assert workspace.state == READY, workspace.state_reason
        assert (yard.directory() / "runs").read_text() == "begun\n"


# The engine's library leaves the socket open whose connection fails; it is closed when nobody has it any more.
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket .*family=1,:ResourceWarning")
@pytest.mark.filterwarnings(
    "ignore:.*unclosed <socket.socket .*family=1,:pytest.PytestUnraisableExceptionWarning"
)
async def test_an_engine_that_is_killed(lonely_yard: Yard, engine: PrivateEngine, tag: str) -> None:
    """Nobody hears what becomes of the command; its container ends when the engine is started again."""
    async with lonely_yard.running(lease_ttl=3.0, docker_timeout=2.0) as (client, _):
        await begun(client, tag)
        await engine.kill()
        await eventually(lambda: not with_argument(tag), within=30, what="the command is dead")
        (lonely_yard.directory() / "go").touch()
        await engine.start()
        workspace = await client.settled()
        assert workspace.state == READY, workspace.state_reason
        assert workspace.setup.ended == workspace_pb2.ExecEnded(exit_code=0)
