"""Migrations up, checked, and refused; with scripts as services have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import services
from services.common.database import Database, check_schema
from services.common.errors import DependencyUnavailable, StartupRefused
from services.common.migrations import head, migrate, pending
from services.common.schema import WrongSchema
from services.common.settings import DatabaseSettings
from tests.databases import execute, fetch_value

SERVICE = "harbour"


def add_script(directory: Path, revision: str, below: str | None, statement: str) -> None:
    (directory / f"{revision}_step.py").write_text(
        f'"""Step {revision}."""\n'
        "from alembic import op\n"
        f"revision = {revision!r}\n"
        f"down_revision = {below!r}\n"
        "def upgrade() -> None:\n"
        f"    op.execute({statement!r})\n"
    )


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service with two migrations, in a directory with a per cent sign."""
    versions = tmp_path / "100% ours" / SERVICE / "migrations" / "versions"
    versions.mkdir(parents=True)
    monkeypatch.setattr(services, "__path__", [*services.__path__, str(tmp_path / "100% ours")])
    add_script(versions, "0001", None, "CREATE TABLE harbour.boats (name text PRIMARY KEY)")
    add_script(versions, "0002", "0001", "ALTER TABLE harbour.boats ADD COLUMN length integer")
    return versions


async def test_all_is_pending_then_nothing(scripts: Path, empty_database_url: str) -> None:
    assert await pending(empty_database_url, SERVICE) == ["0001", "0002"]
    assert await migrate(empty_database_url, SERVICE) == ["0001", "0002"]
    assert await pending(empty_database_url, SERVICE) == []
    assert await migrate(empty_database_url, SERVICE) == []
    assert await fetch_value(empty_database_url, "SELECT count(length) FROM harbour.boats") == 0
    assert await fetch_value(empty_database_url, "SELECT version_num FROM harbour.alembic_version") == "0002"
    assert await fetch_value(empty_database_url, "SELECT to_regclass('public.alembic_version')") is None


async def test_checking_writes_nothing(scripts: Path, empty_database_url: str) -> None:
    await pending(empty_database_url, SERVICE)
    assert await fetch_value(empty_database_url, "SELECT to_regnamespace('harbour')") is None


async def test_only_what_is_new_is_applied(scripts: Path, empty_database_url: str) -> None:
    await migrate(empty_database_url, SERVICE)
    add_script(scripts, "0003", "0002", "CREATE INDEX ON harbour.boats (length)")
    assert await pending(empty_database_url, SERVICE) == ["0003"]
    assert await migrate(empty_database_url, SERVICE) == ["0003"]


async def test_a_failed_script_leaves_the_last_good_revision(scripts: Path, empty_database_url: str) -> None:
    add_script(scripts, "0003", "0002", "CREATE TABLE harbour.boats (again integer)")
    with pytest.raises(Exception, match="already exists"):
        await migrate(empty_database_url, SERVICE)
    assert await pending(empty_database_url, SERVICE) == ["0003"]
    (scripts / "0003_step.py").unlink()
    assert await migrate(empty_database_url, SERVICE) == []


async def test_migrators_at_the_same_time_apply_each_script_once(
    scripts: Path, empty_database_url: str
) -> None:
    results = await asyncio.gather(*(migrate(empty_database_url, SERVICE) for _ in range(4)))
    assert sorted(results) == [[], [], [], ["0001", "0002"]]


async def test_a_newer_database_is_not_touched(scripts: Path, empty_database_url: str) -> None:
    await migrate(empty_database_url, SERVICE)
    (scripts / "0002_step.py").unlink()
    with pytest.raises(StartupRefused, match="0002, which this build does not know"):
        await migrate(empty_database_url, SERVICE)
    with pytest.raises(StartupRefused, match="0002"):
        await pending(empty_database_url, SERVICE)


async def test_a_database_that_is_down_is_unavailable(scripts: Path) -> None:
    with pytest.raises(DependencyUnavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/none", SERVICE)


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        (None, "schema harbour is not in the database: run `moorage migrate`"),
        ("0001", "schema harbour is at 0001, this build needs 0002: run `moorage migrate`"),
        ("0003", "schema harbour is at 0003, this build needs 0002: this build is older"),
    ],
)
async def test_a_service_refuses_another_schema(
    scripts: Path, empty_database_url: str, revision: str | None, message: str
) -> None:
    if revision:
        await migrate(empty_database_url, SERVICE)
        await execute(empty_database_url, "UPDATE harbour.alembic_version SET version_num = $1", revision)
    async with Database(DatabaseSettings(database_url=empty_database_url)) as database:
        with pytest.raises(WrongSchema, match=message):
            await check_schema(database, SERVICE)
        with pytest.raises(WrongSchema, match=message):
            await database.readiness(SERVICE)()


async def test_a_service_takes_its_schema(scripts: Path, empty_database_url: str) -> None:
    await migrate(empty_database_url, SERVICE)
    async with Database(DatabaseSettings(database_url=empty_database_url)) as database:
        await check_schema(database, SERVICE)
        await database.readiness(SERVICE)()


def test_a_service_without_scripts_is_named() -> None:
    with pytest.raises(StartupRefused, match="no service lighthouse"):
        head("lighthouse")


@pytest.mark.parametrize(
    "service",
    sorted(path.parents[1].name for path in Path(services.__path__[0]).glob("*/migrations/versions")),
)
async def test_the_scripts_of_each_service_lead_to_the_head_by_name(
    service: str, empty_database_url: str
) -> None:
    assert (await pending(empty_database_url, service))[-1] == head(service)
