"""One `moorage up` for the programs of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Place, database_like, up


@pytest.fixture(scope="module")
def addresses(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, template_database: str
) -> Iterator[dict[str, str]]:
    """Where each service of this module's `moorage up` listens."""
    place = Place.below(tmp_path_factory.mktemp("up"))
    database = database_like(postgres_url, template_database)
    with database as url, up(place, MOORAGE_DATABASE_URL=url) as (_, announced):
        yield {name: announced[name] for name in ("owner", "session", "journal", "workspace", "runner")}
    place.clean()


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An empty directory."""
    directory = tmp_path / "empty"
    directory.mkdir()
    return directory
