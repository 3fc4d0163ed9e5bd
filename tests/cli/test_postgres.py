"""The embedded PostgreSQL, for real: initialised, used, stopped, killed, orphaned, and refused where it must be."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from services.cli.postgres import data as postgres_data
from services.cli.postgres import embedded as postgres
from services.cli.postgres import home as postgres_home
from services.cli.postgres.embedded import EmbeddedPostgres, EmbeddedPostgresError

OWNER = """
import sys
from pathlib import Path
from services.cli.postgres.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
print(server.start(), server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """Not yet started; its data is gone after the test."""
    embedded = EmbeddedPostgres(tmp_path / "database", durable=False)
    yield embedded
    embedded.remove()


@pytest.fixture
def owner(server: EmbeddedPostgres) -> Iterator[subprocess.Popen[str]]:
    """Another process that is about to start a server on the same directory, and holds it."""
    command = [sys.executable, "-c", OWNER, str(server.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def value_of(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def first_line(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The URL and the pid that an owner prints once its server answers."""
    assert process.stdout
    url, pid = process.stdout.readline().split()
    return url, int(pid)


def runs(pid: int) -> bool:
    """False for a process that ended, reaped or not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_a_started_server_answers_asyncpg_and_sqlalchemy(server: EmbeddedPostgres) -> None:
    url = server.start()
    assert await value_of(url, "SELECT current_database() || ' ' || current_user") == "moorage moorage"
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    await engine.dispose()


async def test_only_the_password_opens_it(server: EmbeddedPostgres) -> None:
    url = make_url(server.start())
    wrong = url.set(password="guess").render_as_string(hide_password=False)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await value_of(wrong, "SELECT 1")


async def test_data_stays_for_the_next_start(server: EmbeddedPostgres) -> None:
    await execute(server.start(), "CREATE TABLE kept AS SELECT 7 AS number")
    server.stop()
    assert server.pid is None
    again = EmbeddedPostgres(server.directory, durable=False)
    try:
        assert await value_of(again.start(), "SELECT number FROM kept") == 7
    finally:
        again.stop()


async def test_a_restart_keeps_the_url_and_a_second_start_changes_nothing(server: EmbeddedPostgres) -> None:
    url = server.start()
    first = server.pid
    assert (server.start(), server.pid) == (url, first)
    assert server.restart() == url
    assert server.pid not in (None, first)
    assert await value_of(url, "SELECT 1") == 1


async def test_what_was_committed_outlives_a_kill(server: EmbeddedPostgres) -> None:
    url = server.start()
    await execute(url, "CREATE TABLE kept AS SELECT 7 AS number")
    server.kill()
    assert server.pid is None
    assert server.start() == url
    assert await value_of(url, "SELECT number FROM kept") == 7


async def test_a_backend_that_outlives_a_kill_does_not_hinder_the_next_start(
    server: EmbeddedPostgres,
) -> None:
    url = server.start()
    connection = await asyncpg.connect(url)
    busy = asyncio.ensure_future(connection.fetchval("SELECT count(*) FROM generate_series(1, 1e12)"))
    while await value_of(url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%1e12%'") != 2:
        await asyncio.sleep(0)
    server.kill()
    server.start()
    assert await value_of(url, "SELECT 1") == 1
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await busy
    connection.terminate()


def test_the_server_ends_with_a_killed_owner_and_the_next_start_needs_no_patience(
    server: EmbeddedPostgres, owner: subprocess.Popen[str]
) -> None:
    _, orphan = first_line(owner)
    assert runs(orphan)
    owner.kill()
    owner.wait()
    server.start()  # waits for the orphan itself
    assert server.pid != orphan
    assert not runs(orphan)


def test_a_directory_has_one_owner_at_a_time(server: EmbeddedPostgres, owner: subprocess.Popen[str]) -> None:
    first_line(owner)
    with pytest.raises(
        EmbeddedPostgresError, match=f"process {owner.pid} uses the database in {server.directory}"
    ):
        server.start()


async def test_two_servers_live_side_by_side(server: EmbeddedPostgres, tmp_path: Path) -> None:
    other = EmbeddedPostgres(tmp_path / "other", durable=False)
    try:
        urls = {server.start(), other.start()}
        assert len({(make_url(url).port, make_url(url).password) for url in urls}) == 2
        assert [await value_of(url, "SELECT 1") for url in urls] == [1, 1]
    finally:
        other.remove()


def test_a_given_port_is_used_or_refused(server: EmbeddedPostgres) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        given = EmbeddedPostgres(server.directory, port=port, durable=False)
        with pytest.raises(EmbeddedPostgresError, match=f"port {port} of 127.0.0.1 is in use"):
            given.start()
    try:
        assert make_url(given.start()).port == port
    finally:
        given.stop()


def test_a_port_lost_in_a_race_is_replaced(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    free = postgres._free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offers = iter([taken.getsockname()[1], free, free, free, free])
        monkeypatch.setattr(postgres, "_free_port", lambda: next(offers))
        assert make_url(server.start()).port == free


def test_below_a_private_directory_nothing_of_others_is_changed(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    above = [private, *private.parents]
    before = [(path.stat().st_mode, path.stat().st_uid) for path in above]
    server = EmbeddedPostgres(private / "checkout" / "database", durable=False)
    try:
        server.start()
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        assert server._home
        assert stat.S_IMODE(server._home.data.stat().st_mode) == 0o700
        assert [(path.stat().st_mode, path.stat().st_uid) for path in above] == before
        kept = server._home.path
        assert (kept / "throwaway").exists() == (kept != server.directory)
        server.stop()
        assert not (kept / "throwaway").exists()
    finally:
        server.remove()
    assert not kept.exists()


async def test_programs_out_of_reach_are_copied(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(postgres_home.packaged_programs(), private / "programs")
    monkeypatch.setattr(postgres_home, "packaged_programs", lambda: private / "programs")
    assert await value_of(server.start(), "SELECT 1") == 1


async def test_a_half_made_directory_is_made_anew(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    assert server._home
    server._home.data.rename(server._home.path / "data.new")
    assert await value_of(server.start(), "SELECT 1") == 1


def test_a_stale_lock_file_that_names_a_living_stranger_is_no_hindrance(server: EmbeddedPostgres) -> None:
    server.start()
    home = server._home
    assert home
    lock_file = home.data / "postmaster.pid"
    lines = lock_file.read_text().splitlines()
    server.stop()
    account = {"user": home.uid, "group": home.gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **account) as stranger:  # type: ignore[call-overload]
        lock_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        home.give(lock_file)
        server.start()
        assert stranger.poll() is None
        stranger.kill()


def test_data_of_another_major_version_is_refused(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    assert server._home
    (server._home.data / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedPostgresError, match="was written by PostgreSQL 16, this one is 17"):
        server.start()


def test_data_of_another_user_is_refused(server: EmbeddedPostgres) -> None:
    server.start()
    home = server._home
    assert home
    stranger = postgres_home.Home(home.path, home.programs, home.uid + 1, home.gid)
    with pytest.raises(EmbeddedPostgresError, match=f"belongs to user {home.uid}"):
        postgres_data.refuse_foreign(stranger)


def test_a_failed_start_shows_the_end_of_the_log_and_lets_go(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    assert server._home
    control = server._home.data / "global" / "pg_control"
    content = control.read_bytes()
    control.write_bytes(b"")
    with pytest.raises(EmbeddedPostgresError, match=r"postgres\.log:\n(.|\n)*pg_control"):
        server.start()
    control.write_bytes(content)
    other = EmbeddedPostgres(server.directory, durable=False)
    other.start()
    other.stop()


def test_the_server_inherits_neither_secrets_nor_settings(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1GB")
    server.start()
    inherited = Path(f"/proc/{server.pid}/environ").read_text()
    assert "LC_ALL=C" in inherited
    assert "secret" not in inherited
    assert "PGOPTIONS" not in inherited


def test_the_url_is_known_from_the_first_start_on(server: EmbeddedPostgres) -> None:
    with pytest.raises(EmbeddedPostgresError, match="not started"):
        _ = server.url
    assert server.start() == server.url


def test_an_interrupt_of_the_terminal_is_not_for_the_server(server: EmbeddedPostgres) -> None:
    server.start()
    assert server.pid
    assert os.getpgid(server.pid) == server.pid != os.getpgrp()
    os.kill(server.pid, signal.SIGHUP)
    assert server.pid
