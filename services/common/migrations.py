"""Migrations: one schema per service, with its own version table in it.

The scripts are `services/<service>/migrations/versions/NNNN_<what>.py`; a script's revision is its
NNNN. They run in one transaction per script, behind a lock, on a direct connection.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from services.common.errors import DependencyUnavailable, StartupRefused

if TYPE_CHECKING:
    import asyncpg
    from alembic.config import Config
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy import Connection

    SomeConnection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

T = TypeVar("T")

_ENVIRONMENT: Final = Path(__file__).with_name("alembic")
_CONNECT_TIMEOUT: Final = 5.0


def versions_of(service: str) -> Path:
    """The directory of a service's scripts, wherever the package is installed."""
    spec = importlib.util.find_spec(f"services.{service}")
    locations = spec.submodule_search_locations if spec else None
    if not locations:
        raise StartupRefused(f"there is no service {service}")
    return Path(locations[0]) / "migrations" / "versions"


def head(service: str) -> str:
    """The revision that this build needs."""
    revisions = sorted(path.name.partition("_")[0] for path in versions_of(service).glob("[0-9]*_*.py"))
    if not revisions:
        raise StartupRefused(f"the service {service} has no migrations")
    return revisions[-1]


async def migrate(database_url: str, service: str) -> list[str]:
    """Bring the service's schema to this build's revision; returns what was applied, oldest first.

    Waits for another migrator of the same database to end.
    """
    if await _is_current(database_url, service):
        return []
    return await _with_connection(database_url, partial(_upgrade, service))


async def pending(database_url: str, service: str) -> list[str]:
    """The revisions that `migrate` would apply, oldest first.

    StartupRefused when the database is at a revision that this build does not know.
    """
    return await _with_connection(database_url, partial(_pending, service))


async def version_in(connection: SomeConnection, service: str) -> str | None:
    """The revision of the service's schema, None where there is none; to be asked in a transaction."""
    # The schema is the service's name, and an identifier cannot be a parameter.
    await connection.execute("SELECT set_config('search_path', $1, true)", service)
    if not await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL"):
        return None
    version: str | None = await connection.fetchval("SELECT max(version_num) FROM alembic_version")
    return version


async def _is_current(database_url: str, service: str) -> bool:
    """Whether there is nothing to do, found out without what takes long to import."""
    import asyncpg  # noqa: PLC0415 (commands that have no database need no driver)

    connection = await _connect(database_url)
    try:
        async with connection.transaction(readonly=True):
            return await version_in(connection, service) == head(service)
    except (asyncpg.PostgresError, asyncpg.InterfaceError):
        # Whoever migrates in earnest is told why.
        return False
    finally:
        await connection.close(timeout=_CONNECT_TIMEOUT)


async def _connect(database_url: str) -> asyncpg.Connection[asyncpg.Record]:
    import asyncpg  # noqa: PLC0415

    from services.common.hosts import connect  # noqa: PLC0415

    try:
        return await connect(database_url, timeout=_CONNECT_TIMEOUT, target_session_attrs="read-write")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DependencyUnavailable(dependency="database", cause=str(error)) from error


async def _with_connection(database_url: str, work: Callable[[Connection], T]) -> T:
    # SQLAlchemy and alembic take half a second to import, and services that only run need neither.
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=partial(_connect, database_url), poolclass=NullPool
    )
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    except DBAPIError as error:
        cause = error.orig.__cause__ if error.orig else error
        raise StartupRefused(f"the database refuses: {cause}") from error
    finally:
        await engine.dispose()


def _upgrade(service: str, connection: Connection) -> list[str]:
    from alembic import command  # noqa: PLC0415
    from sqlalchemy import text  # noqa: PLC0415
    from sqlalchemy.schema import CreateSchema  # noqa: PLC0415

    lock = {"name": f"moorage migrations {service}"}
    connection.execute(text("SELECT pg_advisory_lock(hashtextextended(:name, 0))"), lock)
    try:
        connection.execute(CreateSchema(service, if_not_exists=True))
        connection.commit()
        applied = _pending(service, connection)
        command.upgrade(_config(service, connection), "head")
        return applied
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(hashtextextended(:name, 0))"), lock)
        connection.commit()


def _pending(service: str, connection: Connection) -> list[str]:
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    scripts = ScriptDirectory.from_config(_config(service, connection))
    context = MigrationContext.configure(connection, opts={"version_table_schema": service})
    found = context.get_current_revision()
    connection.rollback()
    known = [script.revision for script in scripts.walk_revisions()][::-1]
    if found is None:
        return known
    if found not in known:
        raise StartupRefused(f"the schema {service} is at {found}, which this build does not know")
    return known[known.index(found) + 1 :]


def _config(service: str, connection: Connection) -> Config:
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", _escaped(_ENVIRONMENT))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", _escaped(versions_of(service)))
    config.attributes["connection"] = connection
    config.attributes["schema"] = service
    return config


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")
