"""`moorage migrate` on real databases."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.cli.programs import Place, error_of
from tests.databases import execute

pytestmark = pytest.mark.timeout(120)


def test_it_tells_what_is_pending_applies_it_and_has_nothing_left(
    place: Place, empty_database_url: str
) -> None:
    database = {"MOORAGE_DATABASE_URL": empty_database_url}
    before = place.moorage("migrate", "--check", "--json", **database)
    assert before.returncode == 1
    pending = json.loads(before.stdout)["pending"]
    assert sorted(pending) == ["owner", "session", "workspace"]
    assert all(pending.values())
    applied = place.moorage("migrate", "--database-url", empty_database_url)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines() == [
        f"{schema}: applied {', '.join(revisions)}" for schema, revisions in pending.items()
    ]
    after = place.moorage("migrate", "--check", **database)
    assert (after.returncode, after.stdout) == (0, "".join(f"{schema}: up to date\n" for schema in pending))
    again = place.moorage("migrate", "--json", **database)
    assert json.loads(again.stdout) == {"applied": {schema: [] for schema in pending}}


async def test_a_schema_of_a_later_build_is_refused(place: Place, database_url: str) -> None:
    await execute(database_url, "UPDATE session.alembic_version SET version_num = '9999'")
    for arguments in (["migrate"], ["migrate", "--check"], ["up", "--listen", "127.0.0.1:0"]):
        refused = place.moorage(*arguments, MOORAGE_DATABASE_URL=database_url)
        assert refused.returncode == 1
        [line] = refused.stderr.splitlines()
        assert line.startswith("error: ")
        assert "9999" in line


def test_it_goes_past_a_pooler_and_has_the_password_from_a_file(
    place: Place, empty_database_url: str, tmp_path: Path
) -> None:
    parts = urlsplit(empty_database_url)
    assert parts.password
    (tmp_path / "password").write_text(parts.password + "\n")
    direct = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port}"))
    database = {
        "MOORAGE_DATABASE_URL": "postgresql://somebody@127.0.0.1:1/pooled",
        "MOORAGE_DATABASE_DIRECT_URL": direct,
        "MOORAGE_DATABASE_PASSWORD_FILE": str(tmp_path / "password"),
    }
    applied = place.moorage("migrate", "--json", **database)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert all(json.loads(applied.stdout)["applied"].values())


@pytest.mark.parametrize("url", ["", "mysql://localhost/moorage"])
def test_a_database_that_cannot_be_is_a_usage_error(place: Place, url: str) -> None:
    refused = place.moorage("migrate", MOORAGE_DATABASE_URL=url)
    assert refused.returncode == 2
    assert "MOORAGE_DATABASE_URL" in refused.stderr


async def test_a_role_that_may_not_change_the_schema_is_told(place: Place, empty_database_url: str) -> None:
    await execute(empty_database_url, "CREATE ROLE reader LOGIN PASSWORD 'reader'")
    url = empty_database_url.partition("@")[2]
    try:
        refused = place.moorage("migrate", "--json", MOORAGE_DATABASE_URL=f"postgresql://reader:reader@{url}")
    finally:
        await execute(empty_database_url, "DROP ROLE reader")
    assert refused.returncode == 1
    assert "permission denied" in error_of(refused.stderr)["message"]
