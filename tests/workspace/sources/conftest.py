"""A site that sources come from, and an instance that may fetch from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.workspace.instances import Client, Machine, running
from tests.workspace.sources.servers import Repository, Site, serving


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serves the repositories of `published`."""
    directory = tmp_path / "published"
    directory.mkdir()
    with serving(directory) as site:
        yield site


@pytest.fixture
def repository(site: Site) -> Repository:
    """Served at /git/code/.git, with a commit."""
    repository = Repository.make(site.directory / "code")
    repository.commit(read_me="first")
    return repository


@pytest.fixture
async def fetching(machine: Machine, site: Site) -> AsyncIterator[Client]:
    """A client of an instance that may fetch from the site."""
    async with running(machine, source_hosts=(site.host,)) as (client, _):
        yield client
