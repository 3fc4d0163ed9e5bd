"""PostgreSQL servers of a module's own, which its tests may stop and kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.cli.postgres.embedded import EmbeddedPostgres


@contextmanager
def own_server(directories: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One that serves within the block, and leaves nothing."""
    server = EmbeddedPostgres(directories.mktemp("own_postgres"), durable=False)
    server.start()
    try:
        yield server
    finally:
        server.remove()
