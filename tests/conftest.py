"""What all tests share: a real PostgreSQL with one migrated template, cloned for each test that asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import structlog

from services.cli.postgres.embedded import EmbeddedPostgres
from services.common.database import Database
from services.common.migrations import migrate
from services.common.settings import DatabaseSettings
from tests.databases import Clones, execute, in_database

T = TypeVar("T")

REQUIRE_ALL = "MOORAGE_REQUIRE_ALL"
TEMPLATE = "moorage_template"
SERVICES = Path(__file__).parents[1] / "services"
MOST_WORKERS = 8
MEMORY = Path("/dev/shm")
ROOMY = 4 * 1024**3
# By how long their files run; the rest is short.
LONGEST_FIRST = {
    name: place
    for place, name in enumerate(
        ("deploy", "faults", "system", "docker", "exec", "stop_table", "races", "cli", "runner")
    )
}


def pytest_configure() -> None:
    """Let nothing of the caller's environment reach the settings under test; show logs as pytest does."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    for name in [name for name in os.environ if name.startswith(("MOORAGE_", "OTEL_"))]:
        if name != REQUIRE_ALL:
            del os.environ[name]
    # Without bytecode each of the hundreds of processes that tests start compiles all its modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes for two cores: much of a test is waiting for a lease to end or a process to start."""
    return min(len(os.sched_getaffinity(0)) * 3 // 2, MOST_WORKERS) or 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no process is left alone with a long file at the end."""
    items.sort(key=lambda item: LONGEST_FIRST.get(item.path.parent.name, len(LONGEST_FIRST)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """With MOORAGE_REQUIRE_ALL a skipped test is a failed one."""
    return _strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """With MOORAGE_REQUIRE_ALL a skipped module is a failed one."""
    return _strict((yield))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The server of this test session."""
    with _roomy_memory() as memory:
        server = EmbeddedPostgres(memory or tmp_path_factory.mktemp("postgres"), durable=False)
        server.start()
        yield server
        server.remove()


@pytest.fixture(scope="session")
def postgres_url(postgres: EmbeddedPostgres) -> str:
    """Its URL, for what makes its own databases."""
    return postgres.url


@pytest.fixture(scope="session")
def template_database(postgres_url: str) -> str:
    """The name of a database with the schemas of all services, to be cloned and never opened."""
    _run(_make_template(postgres_url))
    return TEMPLATE


@pytest.fixture(scope="session")
def clones(postgres_url: str, template_database: str) -> Iterator[Clones]:
    """Where databases with the schemas of all services come from."""
    clones = Clones(postgres_url, template_database)
    yield clones
    clones.close()


@pytest.fixture
async def database_url(clones: Clones) -> AsyncIterator[str]:
    """A database of this test only, with the schemas of all services."""
    async with clones.one() as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres_url: str) -> AsyncIterator[str]:
    """A database of this test only, without any schema."""
    name = f"empty_{secrets.token_hex(6)}"
    await execute(postgres_url, f'CREATE DATABASE "{name}"')
    yield in_database(postgres_url, name)
    await execute(postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def database_settings(database_url: str) -> DatabaseSettings:
    """Settings for this test's database."""
    return DatabaseSettings(database_url=database_url)


@pytest.fixture
async def database(database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    """This test's database, opened."""
    async with Database(database_settings, name="test") as opened:
        yield opened


@contextlib.contextmanager
def _roomy_memory() -> Iterator[Path | None]:
    """A directory in memory where there is room: a clone is 300 files, which a disk's file system takes twice as long for."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOMY:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="moorage-", dir=MEMORY) as directory:
        # As root, PostgreSQL runs as a user that has to get in.
        place = Path(directory)
        place.chmod(0o711)
        yield place / "postgres"


async def _make_template(postgres_url: str) -> None:
    await execute(postgres_url, f'CREATE DATABASE "{TEMPLATE}"')
    for versions in sorted(SERVICES.glob("*/migrations/versions")):
        await migrate(in_database(postgres_url, TEMPLATE), versions.parents[1].name)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a loop that no test sees."""
    run: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run, work).result()


def _strict(report: Any) -> Any:
    if report.skipped and os.environ.get(REQUIRE_ALL) and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although {REQUIRE_ALL} is set: {report.longrepr}"
    return report
