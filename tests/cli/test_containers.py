"""What is told of containers and of workspaces: all that is in the way, in lines that fit a terminal."""

from __future__ import annotations

import io

import pytest
from moorage.common.v1.provision_pb2 import ResourceLimits
from moorage.workspace.v1.workspace_pb2 import Engine, Provider, Workspace
from rich.console import Console

from services.cli import containers
from services.cli.checkup import Absent, Unwell
from services.cli.commands import workspaces
from services.cli.output import Output, folded
from services.cli.providers import rows_of

ADDRESS = "unix:///var/run/docker.sock"
DENIED = f"no access to the engine at {ADDRESS}: Permission denied; whoever runs this service must be in group docker"
HELPER = "the helper for containers was not built for x86_64: make helper"


def provider(cause: str = "", *missing: str, version: str = "28.5.2", **fields: object) -> Provider:
    """Of a service that allows two images; `cause` is its engine's."""
    engine = Engine(address=ADDRESS, version=version, missing_images=missing, unavailable_cause=cause)
    made = Provider(
        name="docker", enabled=True, images=["a:1", "b:1"], unavailable_cause=cause, engine=engine
    )
    made.MergeFrom(Provider(**fields))  # type: ignore[arg-type]
    return made


def without_helper(cause: str = "", *missing: str) -> Provider:
    found = provider(cause, *missing)
    found.enabled, found.unavailable_cause = False, HELPER
    return found


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (provider("", "b:1"), "the engine lacks b:1: build or pull it there"),
        (
            provider("", "a:1", "b:1"),
            "no containers of a:1, b:1 can be made: the engine lacks a:1, b:1: build or pull it there",
        ),
        (provider(DENIED, "b:1"), f"no containers of a:1, b:1 can be made: {DENIED}"),
        (
            provider(version=""),
            f"no containers of a:1, b:1 can be made: the engine at {ADDRESS} does not answer yet",
        ),
        (without_helper(), f"no containers of a:1, b:1 can be made: {HELPER}"),
        (
            without_helper("", "b:1"),
            f"no containers of a:1, b:1 can be made: {HELPER}; the engine lacks b:1: build or pull it there",
        ),
        (without_helper(DENIED), f"no containers of a:1, b:1 can be made: {HELPER}; {DENIED}"),
    ],
)
def test_all_that_is_in_the_way_is_told(found: Provider, told: str) -> None:
    with pytest.raises(Unwell) as unwell:
        containers.told(found)
    assert str(unwell.value) == told


def test_what_was_switched_off_on_purpose_is_no_fault() -> None:
    off = Provider(name="docker", images=["a:1"], unavailable_cause="provisioning is disabled", withheld=True)
    with pytest.raises(Absent, match=r"^makes no containers: provisioning is disabled by the service's"):
        containers.told(off)
    with pytest.raises(Absent, match="no image is allowed"):
        containers.told(Provider(name="docker", withheld=True))


def test_a_start_says_of_which_engine_containers_are() -> None:
    assert containers.brief(provider()) == (
        f"makes containers of a:1, b:1 on engine 28.5.2 at {ADDRESS}",
        "",
    )
    assert containers.brief(provider("", "b:1")) == (
        f"the engine lacks b:1: build or pull it there (engine 28.5.2 at {ADDRESS})",
        "yellow",
    )
    assert containers.brief(provider(DENIED))[0].endswith(DENIED)


def test_lines_go_on_below_themselves() -> None:
    assert folded("  docker     no containers of x", 13, 24) == (
        "  docker     no\n             containers\n             of x"
    )


def printed(*, terminal: bool) -> tuple[Output, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, color_system=None, width=80, soft_wrap=True)
    return Output(console=console), file


@pytest.mark.parametrize("terminal", [True, False])
def test_providers_fit_a_terminal(terminal: bool) -> None:
    output, file = printed(terminal=terminal)
    found = provider(DENIED, "b:1", limits=ResourceLimits(cpus=1, memory_bytes=2**29, pids=256))
    output.table(rows_of([found, Provider(name="local", enabled=True, root="/home/me/project")]))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["docker", "local"]
    told = " ".join(file.getvalue().split())
    assert f"docker makes any no: {DENIED}" in told
    assert "images a:1, b:1 missing b:1: build or pull on the engine limits 1 cpu, 512 MiB, 256 pro" in told
    assert f"engine 28.5.2 at {ADDRESS} local makes any yes below /home/me/project" in told


def test_of_an_engine_that_has_not_answered_nothing_is_known() -> None:
    rows = rows_of([provider(version="")])
    assert rows[0] == ("docker", "makes any", "not known yet")
    assert rows[-1] == ("", "engine", f"does not answer yet, at {ADDRESS}")


@pytest.mark.parametrize("terminal", [True, False])
def test_workspaces_fit_a_terminal(terminal: bool) -> None:
    output, file = printed(terminal=terminal)
    found = Workspace(
        workspace_id=f"ws_{'1' * 24}",
        session_id=f"session_{'2' * 24}",
        provider="docker",
        root="/home/me/project",
        state=2,  # type: ignore[arg-type]
    )
    found.spec.image = "moorage-test:demo"
    output.table([workspaces._row(found)], workspaces.COLUMNS, below=True)
    header, _, row, below = lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert header.split() == ["workspace", "session", "state"]
    assert row.startswith(f"{found.workspace_id}  {found.session_id}  ")
    assert below == "    docker  moorage-test:demo  /home/me/project"
