"""Where a bench puts its data: everything on one disk, gone afterwards. And a database there."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.stack import SCHEMAS
from services.common.migrations import migrate

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory of this run."""
    place = ROOT / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def database(directory: Path) -> AsyncIterator[str]:
    """The URL of an embedded PostgreSQL with the schemas of all services; fsync is on, as in earnest."""
    server = EmbeddedPostgres(directory / "postgres", durable=True)
    try:
        url = server.start()
        for schema in SCHEMAS:
            await migrate(url, schema)
        yield url
    finally:
        server.remove()
