"""A PostgreSQL primary with a synchronous standby, both from the embedded programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from services.cli.postgres import embedded as postgres
from services.cli.postgres.data import end_leftovers
from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.postgres.home import find_home
from tests.conditions import eventually
from tests.databases import execute, fetch_value


class Pair:
    """Begins with a primary and a standby that has all that was committed. `url` names both hosts."""

    def __init__(self, directory: Path) -> None:
        self.primary = EmbeddedPostgres(directory / "primary", durable=False)
        (directory / "standby").mkdir(parents=True)
        self._home = find_home(directory / "standby")
        self._standby: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        parts = urlsplit(self.primary.url)
        return parts._replace(netloc=f"{parts.netloc},127.0.0.1:{self._port}").geturl()

    @property
    def standby_url(self) -> str:
        parts = urlsplit(self.primary.url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{self._port}").geturl()

    async def start(self) -> Self:
        """Commits wait for the standby from now on, as the owner's tables need it."""
        self.primary.start()
        self._port = postgres._free_port()
        self._home.data.mkdir(mode=0o700)
        self._home.give(self._home.data)
        source = (f"--dbname={self.primary.url}", "--wal-method=stream", "--checkpoint=fast")
        self._home.run(
            "pg_basebackup", *source, f"--pgdata={self._home.data}", "--write-recovery-conf", "--no-sync"
        )
        self._launch()
        await eventually(self._replicates, within=30, what="the standby replicates")
        await execute(self.primary.url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        await execute(self.primary.url, "SELECT pg_reload_conf()")
        return self

    async def promote(self) -> None:
        """Make the standby the primary."""
        await execute(self.standby_url, "SELECT pg_promote()")

    def hang(self) -> None:
        """The primary's processes are there, and do nothing more."""
        self._signal_primary(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `hang`."""
        self._signal_primary(signal.SIGCONT)

    def remove(self) -> None:
        """End both and delete their data."""
        self.go_on()
        if self._standby is not None:
            self._standby.send_signal(signal.SIGQUIT)
            self._standby.wait()
            end_leftovers(self._home.data)
        shutil.rmtree(self._home.path, ignore_errors=True)
        self.primary.remove()

    def _launch(self) -> None:
        # A standby must not have fewer connections than its primary.
        settings = {**postgres._SETTINGS, "fsync": "off", "port": str(self._port)}
        options = (argument for name, value in settings.items() for argument in ("-c", f"{name}={value}"))
        self._standby = subprocess.Popen(
            self._home.command("postgres", "-D", str(self._home.data), *options),
            cwd=self._home.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _replicates(self) -> bool:
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        return bool(await fetch_value(self.primary.url, query))

    def _signal_primary(self, number: signal.Signals) -> None:
        """To each of its processes: they are in groups of their own."""
        if (pid := self.primary.pid) is None:
            return
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (str(pid), *children):
            os.kill(int(each), number)
