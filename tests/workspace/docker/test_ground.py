"""Where directories may lie that containers get, without an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.common.errors import InvalidArgument
from services.workspace.docker.containers import User
from services.workspace.docker.ground import Ground
from services.workspace.docker.writable import allows
from services.workspace.providers import directories
from services.workspace.providers.labels import Label


@pytest.mark.parametrize(
    ("state", "barred"),
    [
        ("/srv/state", False),
        ("/home/moorage", True),
        ("/home/moorage/state", True),
        ("/.moorage/state", True),
    ],
)
def test_no_directory_is_mounted_in_what_a_container_has_of_its_own(state: str, barred: bool) -> None:
    """Its agent could put links on the way to it, and the engine follows them at the next start."""
    assert bool(Ground("bridge", state, User(1, 1), "one").barred()) is barred


@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [
        ((0, 0), 0o755, False),
        ((0, 0), 0o757, True),
        ((0, 10001), 0o775, True),
        # The others do not matter to a member of the group.
        ((0, 10001), 0o757, False),
        ((0, 0), 0o756, False),
        ((10001, 10001), 0o755, True),
        # It is its owner's to change.
        ((12345, 12345), 0o555, True),
    ],
)
def test_roots_directory_is_closed_to_all_whom_its_mode_does_not_let_in(
    owner: tuple[int, int], mode: int, taken: bool
) -> None:
    status = os.stat_result((mode, 1, 1, 1, *owner, 0, 0, 0, 0))
    assert allows(status, User(10001, 10001)) is taken


@pytest.mark.parametrize("inside", ["", ".home", "/deep/er"])
def test_what_any_instance_made_is_no_source(tmp_path: Path, inside: str) -> None:
    """Its workspaces are others', also when nobody serves its state directory any more."""
    former = tmp_path / "former"
    project = former / "default"
    project.mkdir(parents=True)
    source = Path(f"{project}/w1{inside}")
    source.mkdir(parents=True)
    source.chmod(0o777)
    ground = Ground("bridge", str(tmp_path / "state"), User(10001, 10001), "one", root=str(tmp_path))
    for other in ("null", "[" * 4096, '{"project": "default"}'):
        (project / "w1.json").write_text(other)
        assert ground.accept("field", str(source)) == str(source)
    (project / "w1.json").unlink()
    with directories.opened(str(project)) as parent:
        Label("another", "gone", "local", "default", "w1").write(parent)
    with pytest.raises(InvalidArgument, match="was made for a workspace"):
        ground.accept("field", str(source))
