"""What the shared fixtures and hooks promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.common.database import Database
from tests.databases import execute, fetch_value

ROOT = Path(__file__).parents[2]
OPTIONS = [
    "--continue-on-collection-errors",
    "-rN",  # with CI set, the summary says it all again
    "-p",
    "tests.conftest",
    "-p",
    "no:cacheprovider",
    "-c",
    str(ROOT / "pyproject.toml"),
]
SKIPPED = "import pytest\n\n\ndef test_skipped() -> None:\n    pytest.skip('no docker here')\n"
SKIPPED_MODULE = "import pytest\n\npytest.importorskip('no_such_module_at_all')\n"


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("required", "code"), [("1", 1), ("", 0)])
def test_a_skip_is_a_failure_where_all_is_required(
    tmp_path: Path, required: str, code: int, processes: str
) -> None:
    (tmp_path / "test_one.py").write_text(SKIPPED)
    (tmp_path / "test_two.py").write_text(SKIPPED_MODULE)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "-n", processes, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MOORAGE_REQUIRE_ALL": required},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended.stdout
    assert ended.stdout.count("skipped although MOORAGE_REQUIRE_ALL is set") == 2 * code


async def test_each_test_has_a_database_of_its_own(
    database: Database, database_url: str, empty_database_url: str
) -> None:
    await execute(database_url, "CREATE TABLE public.mine (id integer)")
    assert await fetch_value(empty_database_url, "SELECT to_regclass('public.mine')") is None
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM public.mine") == 0
