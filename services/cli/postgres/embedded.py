"""A PostgreSQL server of our own, from the wheel of the `embedded` extra: data in a directory, its life tied to ours.

The calls block; an initialisation and start take about a second.
"""

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

from services.cli.postgres.data import end_leftovers, initialise, refuse_foreign
from services.cli.postgres.home import EmbeddedPostgresError, Home, find_home
from services.cli.postgres.stale import note, remove_stale, withdraw

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError"]

_START_PATIENCE = 120.0  # crash recovery may be long
_STOP_PATIENCE = 30.0
_POLL = 0.02
_LARGEST_LOG = 8 * 1024 * 1024
_PORTS = range(
    20000, 32000
)  # below what systems give to outgoing connections, so that a restart finds its port free
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # the path of a socket may not be longer than 107 bytes
    "max_connections": "200",
    "log_checkpoints": "off",
    "timezone": "UTC",
}
# Enough for data that need not outlive this machine's next crash. Commits stay synchronous: they outlive a kill.
_THROWAWAY_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One server for one directory, which nobody else may use meanwhile.

    The server stops when this process ends, even by SIGKILL (on Linux; and when the thread that called start() ends,
    so call it from one that lives as long). A later start, by whatever process, goes on with the same data.
    """

    def __init__(self, directory: Path, *, port: int | None = None, durable: bool = True) -> None:
        """Touches nothing yet. Without a port a free one is taken at the first start and kept; durable=False is for tests."""
        self.directory = directory.absolute()
        self.log_file = self.directory / "postgres.log"
        self._port = port
        self._port_is_given = port is not None
        self._durable = durable
        self._home: Home | None = None
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._password = ""

    @property
    def url(self) -> str:
        """For asyncpg, and for SQLAlchemy with its driver's name put in. Known from the first start on."""
        if not self._password or self._port is None:
            raise EmbeddedPostgresError("the embedded PostgreSQL was not started yet")
        return f"postgresql://moorage:{self._password}@127.0.0.1:{self._port}/moorage"

    @property
    def place(self) -> Path:
        """Where the data lies: as root not always in the directory. Known from the first start on."""
        return self._home.path if self._home else self.directory

    @property
    def pid(self) -> int | None:
        """Of the server's first process while that runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> str:
        """Start the server, initialise its data before when there is none, and return its URL once it answers."""
        if self.pid is None:
            try:
                self._take_directory()
                home = self._home or find_home(self.directory)
                self._prepare(home)
                self._launch(home)
            except BaseException as error:
                self.stop()
                if isinstance(error, OSError):
                    raise EmbeddedPostgresError(f"no PostgreSQL in {self.directory}: {error}") from error
                raise
        return self.url

    def stop(self) -> None:
        """End the server; its clients are disconnected, what was committed is safe. Fine when it does not run."""
        for order in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if not self._process or _ends_after(self._process, order):
                break
        self._process = None
        if self._home:
            withdraw(self._home)
        self._let_go()

    def restart(self) -> str:
        """Stop and start with the same URL."""
        self.stop()
        return self.start()

    def kill(self) -> None:
        """SIGKILL to the server's first process, for fault tests; the others end when they notice."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Stop and delete all data, wherever it lies, for tests."""
        self.stop()
        if self.directory.exists():
            self._take_directory()
            home = self._home or find_home(self.directory)
            end_leftovers(home.data)
            shutil.rmtree(home.path)
            shutil.rmtree(self.directory, ignore_errors=True)
        self._home, self._password = None, ""
        self._let_go()

    def _take_directory(self) -> None:
        """From here on nobody else may start a server on this data, until we let go or end."""
        if self._lock:
            return
        self.directory.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        lock = (self.directory / "lock").open("a+", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read() or "unknown"
            lock.close()
            raise EmbeddedPostgresError(f"process {owner} uses the database in {self.directory}") from None
        self._lock = lock
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        _roll(self.log_file)

    def _let_go(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None

    def _prepare(self, home: Home) -> None:
        """Data that this server can use, with nobody at work on it."""
        if not self._durable and home.path != self.directory:
            note(home, self.directory)
            remove_stale(home)
        end_leftovers(home.data)
        if not home.data.exists():
            initialise(home, durable=self._durable)
        refuse_foreign(home)
        self._home, self._password = home, home.password_file.read_text()

    def _launch(self, home: Home) -> None:
        """Start the server on our port, or on the first of some free ones that nobody else takes meanwhile."""
        ports = [self._port] if self._port else [_free_port() for _ in range(5)]
        for port in ports:
            if self._serves(home, port):
                self._port = port
                return
        raise EmbeddedPostgresError(f"port {ports[-1]} of 127.0.0.1 is in use by another program")

    def _serves(self, home: Home, port: int) -> bool:
        """Start the server and wait until it answers; False when the port is taken."""
        settings = _SETTINGS | ({} if self._durable else _THROWAWAY_SETTINGS) | {"port": str(port)}
        options = (argument for name, value in settings.items() for argument in ("-c", f"{name}={value}"))
        with self.log_file.open("ab") as log:
            start_of_log = log.tell()
            self._process = subprocess.Popen(
                home.command("postgres", "-D", str(home.data), *options),
                cwd=home.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for us; we stop the server when nobody needs it any more
            )
        deadline = time.monotonic() + _START_PATIENCE
        while not _is_ready(home, self._process.pid):
            if self._process.poll() is not None:
                return self._explain(start_of_log)
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(
                    f"PostgreSQL is not ready after {_START_PATIENCE:.0f} s; see {self.log_file}"
                )
            time.sleep(_POLL)
        return True

    def _explain(self, start_of_log: int) -> bool:
        """Why the server ended: False for a taken port, everything else is raised with the log's last lines."""
        text = self.log_file.read_bytes()[start_of_log:].decode(errors="replace")
        if "Address already in use" in text:
            return False
        last_lines = "\n".join(text.splitlines()[-10:])
        raise EmbeddedPostgresError(f"PostgreSQL does not start; the end of {self.log_file}:\n{last_lines}")


def _ends_after(process: subprocess.Popen[bytes], order: signal.Signals) -> bool:
    process.send_signal(order)
    try:
        process.wait(_STOP_PATIENCE)
    except subprocess.TimeoutExpired:
        return False
    return True


def _roll(log: Path) -> None:
    """A log file for us alone, not growing for ever: of the one before it one is kept."""
    log.touch(mode=0o600)
    if log.stat().st_size > _LARGEST_LOG:
        log.replace(log.with_suffix(".log.1"))
        log.touch(mode=0o600)


def _is_ready(home: Home, pid: int) -> bool:
    """As PostgreSQL itself says in its lock file: the first line is the pid, the eighth the state."""
    try:
        lines = (home.data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _free_port() -> int:
    """One that was free a moment ago."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
