"""The data of the embedded PostgreSQL: made once, whole or not at all, and by one server at a time."""

import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from services.cli.postgres.home import EmbeddedPostgresError, Home, postgres_version

_POLL = 0.02
# What a left-over process is sent, and for how many seconds. Most end by themselves (0 is no signal).
_LADDER = ((0, 2.0), (signal.SIGINT, 30.0), (signal.SIGKILL, 10.0))


def initialise(home: Home, *, durable: bool) -> None:
    """Make the data with one role and one database, both named moorage."""
    fresh = home.path / "data.new"
    end_leftovers(fresh)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    home.give(fresh)
    _write_password(home)
    _initdb(home, fresh, durable=durable)
    _single_user(home, fresh, "CREATE DATABASE moorage", durable=durable)
    fresh.rename(home.data)
    _sync(home.path)


def refuse_foreign(home: Home) -> None:
    """Raises EmbeddedPostgresError for data of another user or of another major version."""
    owner = home.data.stat().st_uid
    if owner != home.uid:
        raise EmbeddedPostgresError(
            f"{home.data} belongs to user {owner}, PostgreSQL would run as user {home.uid}"
        )
    found, ours = (home.data / "PG_VERSION").read_text().strip(), postgres_version().partition(".")[0]
    if found != ours:
        text = f"{home.data} was written by PostgreSQL {found}, this one is {ours}: dump it with the old one, or remove it"
        raise EmbeddedPostgresError(text)


def end_leftovers(data: Path) -> None:
    """Wait for, then end what a killed server or a killed owner left at work on the data; only for the lock's holder."""
    if not Path("/proc/self/exe").exists():
        return  # then PostgreSQL's own checks have to do
    for order, patience in _LADDER:
        for pid in _servers_of(data):
            with suppress(ProcessLookupError):
                os.kill(pid, order)
        if _end_within(patience, data):
            # Else the number in it may belong to another program by now, and PostgreSQL would not start.
            (data / "postmaster.pid").unlink(missing_ok=True)
            return
    raise EmbeddedPostgresError(f"processes {list(_servers_of(data))} still use {data}")


def _write_password(home: Home) -> None:
    home.password_file.unlink(missing_ok=True)
    descriptor = os.open(home.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(24))
    home.give(home.password_file)


def _initdb(home: Home, target: Path, *, durable: bool) -> None:
    home.run(
        "initdb",
        f"--pgdata={target}",
        "--username=moorage",
        f"--pwfile={home.password_file}",
        "--auth=scram-sha-256",
        "--set=scram_iterations=1",  # the password is random: repeating its hash only makes each connection slow
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        *([] if durable else ["--no-sync"]),
    )


def _single_user(home: Home, data: Path, statement: str, *, durable: bool) -> None:
    fsync = "on" if durable else "off"
    options = ("-c", "exit_on_error=true", "-c", f"fsync={fsync}")
    home.run("postgres", "--single", "-D", str(data), *options, "postgres", given=f"{statement}\n")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_within(patience: float, data: Path) -> bool:
    deadline = time.monotonic() + patience
    while any(_servers_of(data)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _servers_of(data: Path) -> Iterator[int]:
    """Every process of PostgreSQL that works in this data directory; each of them has it as its current one."""
    data = data.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or it is another user's
            if (process / "cwd").readlink() == data and (process / "exe").readlink().name.startswith(
                "postgres"
            ):
                yield int(process.name)
