"""Directories for the program, with and without a `moorage up` in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Place, database_like, up


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory of this test only, in which nothing runs."""
    place = Place.below(tmp_path)
    yield place
    place.clean()


@pytest.fixture(scope="session")
def moored(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, template_database: str
) -> Iterator[Place]:
    """A directory in which `moorage up` runs, for all files: tests leave its services as they were."""
    place = Place.below(tmp_path_factory.mktemp("moored"))
    with database_like(postgres_url, template_database) as url, up(place, MOORAGE_DATABASE_URL=url):
        yield place
    place.clean()


@pytest.fixture
def here(moored: Place, tmp_path: Path) -> Iterator[Place]:
    """A directory of this test only, below the one in which `moorage up` runs."""
    work = moored.work / tmp_path.name
    work.mkdir()
    place = Place(work, moored.state_home)
    yield place
    for program in place.started:
        program.kill()
