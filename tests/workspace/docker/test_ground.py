"""Where directories may lie that containers get, without an engine."""

from __future__ import annotations

import pytest

from services.workspace.docker.containers import User
from services.workspace.docker.ground import Ground


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
    assert bool(Ground("bridge", state, User(1, 1)).barred) is barred
