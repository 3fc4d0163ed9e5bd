"""What people type for sessions in containers, against a running `up`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.cli.programs import Place, error_of, up
from tests.docker.harbour import DEMO
from tests.engines import BUSYBOX, shared_engine

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def moored(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A directory in which `moorage up` runs, with two images."""
    place = Place.below(tmp_path_factory.mktemp("moored"))
    images = ("--docker-image", DEMO, "--docker-image", BUSYBOX)
    with up(place, *images, MOORAGE_WORKSPACE_DOCKER_HOST=shared_engine()) as (_, announced):
        assert announced["docker"]["engine"]["version"]
        yield place
    place.clean()


@pytest.fixture
def here(moored: Place, tmp_path: Path) -> Iterator[Place]:
    """A directory of this test only, which a container's user may change; its sessions are closed."""
    work = moored.work / tmp_path.name
    work.mkdir()
    work.chmod(0o777)
    place = Place(work, moored.state_home)
    yield place
    for program in place.started:
        program.kill()
    place.moorage("session", "close")


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_run_works_on_this_directory_in_a_container(here: Place, engine: docker.DockerClient) -> None:
    (here.work / "file").write_text("from outside\n")
    first = here.moorage("run", "--docker", "--memory", "128m", "run cat file; echo inside > made; hostname")
    assert (first.returncode, first.stderr) == (0, "")
    assert "from outside" in first.stdout
    assert (here.work / "made").read_text() == "inside\n"
    [session] = documents(here.moorage("session", "get", "--json").stdout)
    workspace = session["workspace"]
    assert (workspace["provider"], workspace["image"], workspace["root"]) == ("docker", DEMO, str(here.work))
    [container] = engine.containers.list(
        filters={"label": f"io.moorage.workspace={workspace['workspaceId']}"}
    )
    assert container.short_id in first.stdout
    assert container.attrs["HostConfig"]["Memory"] == 128 * 2**20

    again = here.moorage("run", "--docker", "--image", DEMO, "say still here")
    assert again.returncode == 0
    refused = here.moorage("run", "--docker", "--image", BUSYBOX, "say other")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: --image: session {session['sessionId']} was made with {DEMO}")

    shown = here.moorage("session", "get").stdout
    assert f"{DEMO} (docker)" in shown
    assert "network" in shown
    assert here.moorage("session", "close").returncode == 0
    assert engine.containers.list(all=True, filters={"id": str(container.id)}) == []
    assert (here.work / "made").exists()


def test_workspaces_and_what_makes_them_are_shown(here: Place) -> None:
    told = here.moorage("workspace", "providers").stdout
    assert re.search(rf"^docker +makes any +yes\n +images +{DEMO}, {BUSYBOX}\n +limits ", told)
    # Where the socket's path is long it has a line of its own.
    assert f" at {shared_engine()} " in f"{' '.join(told.split())} "
    assert "✓ docker     makes containers of" in here.moorage("doctor").stdout
    made = here.moorage(
        *("session", "create", "--docker", "--image", BUSYBOX, "--cpus", "0.5", "--pids", "20"),
        *("--setup", "touch set-up", "--idle-ttl", "2h", "--keep-for", "1d", "--wait", "--json"),
    )
    [session] = documents(made.stdout)
    workspace_id = session["workspace"]["workspaceId"]
    assert session["workspace"]["state"] == "READY"
    assert (Path(session["workspace"]["root"]) / "set-up").exists()
    listed = here.moorage("workspace", "list").stdout.splitlines()
    [place] = [place for place, row in enumerate(listed) if row.startswith(workspace_id)]
    assert listed[place].split()[2] == "READY"
    assert listed[place + 1].split() == ["docker", BUSYBOX, session["workspace"]["root"]]
    facts = here.moorage("workspace", "get", workspace_id).stdout
    for fact in ("0.5 cpu", "20 processes", "touch set-up: exit code 0", "2h", "none"):
        assert fact in facts
    assert here.moorage("session", "close", session["sessionId"]).returncode == 0
    assert "goes at" in here.moorage("workspace", "get", workspace_id).stdout
    assert "kept until" in here.moorage("session", "get", session["sessionId"]).stdout
    assert here.moorage("session", "delete", "--yes", session["sessionId"]).returncode == 0


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
@pytest.mark.parametrize("container", [(), ("--docker",)], ids=["directory", "container"])
def test_run_works_on_a_repository_that_was_fetched(here: Place, container: tuple[str, ...]) -> None:
    repository = here.work / "repository"
    git = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b")
    repository.mkdir()
    (repository / "file").write_text("committed\n")
    for command in (("init", "--quiet", "--initial-branch=trunk"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *command], check=True)
    source = ("--git", f"file://{repository}#trunk")
    ran = here.moorage("run", *container, *source, "--setup", "touch set-up", "run cat file; ls set-up")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "committed" in ran.stdout
    [session] = documents(here.moorage("session", "get", "--json").stdout)
    root = Path(session["workspace"]["root"])
    assert not root.is_relative_to(here.work)
    assert here.moorage("run", *container, *source, "say again").returncode == 0
    other = here.moorage("run", "--git", "file:///elsewhere", "say again")
    assert other.stderr.startswith("error: --git: session ")
    assert here.moorage("session", "close").returncode == 0
    assert not root.exists()


def test_an_agent_that_needs_a_network_is_told_at_once(here: Place) -> None:
    refused = here.moorage("run", "--docker", "--profile", "opencode", "say hello", "--json")
    assert refused.returncode == 1
    error = error_of(refused.stderr)
    assert error["reason"] == "NETWORK_REQUIRED"
    assert error["metadata"]["profile"] == "opencode"
    assert error["hint"] == "`--network bridge` gives it one"
    assert here.moorage("run", "--image", BUSYBOX, "say hello").returncode == 2
