"""`moorage runner drain` against an `up` of its own: a runner that was drained is not used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Place, up

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory to serve."""
    place = Place.below(tmp_path)
    yield place
    place.clean()


def test_a_drained_runner_has_nothing_and_takes_nothing(place: Place, database_url: str) -> None:
    with up(place, MOORAGE_DATABASE_URL=database_url):
        assert place.moorage("run", "say hello").returncode == 0
        assert place.moorage("runner", "drain", "local").returncode == 2
        over = json.loads(place.moorage("runner", "drain", "local", "--yes", "--json").stdout)
        assert over["holder"].partition("/")[0] == "local"
        assert (over.get("executions", 0), over.get("runtimes", 0)) == (0, 0)
        # It has given its name back: there is nobody left to be told.
        again = place.moorage("runner", "drain", "local")
        assert again.returncode == 1
        assert "not registered any more" in again.stderr
        leases = place.moorage("lease", "list").stdout
        assert "runners/" not in leases
        assert "sessions/" not in leases
        unknown = place.moorage("runner", "drain", "nobody")
        assert unknown.returncode == 1
        assert "LEASE_NOT_FOUND" in unknown.stderr
