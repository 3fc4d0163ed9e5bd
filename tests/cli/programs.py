"""The program `moorage` as people run it: real processes, in directories of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.state import state_directory
from tests.cli.preloaded import preloaded
from tests.databases import execute, in_database

MOORAGE = (sys.executable, "-m", "services.cli")
_PATIENCE = 110.0


@dataclass(frozen=True)
class Place:
    """A directory to work in, and where this user's state is kept."""

    work: Path
    state_home: Path
    started: list[Program] = field(default_factory=list, compare=False)

    @classmethod
    def below(cls, base: Path) -> Self:
        """A fresh one."""
        place = cls((base / "work").resolve(), (base / "state").resolve())
        place.work.mkdir()
        return place

    @property
    def state(self) -> Path:
        """What `up` keeps for the directory."""
        with _environment(XDG_STATE_HOME=str(self.state_home)):
            return state_directory(self.work)

    def clean(self) -> None:
        """End what a failed test left, and remove the database, which root keeps elsewhere."""
        for program in self.started:
            program.kill()
        EmbeddedPostgres(self.state / "postgres").remove()

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of every program that is started here."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")},
            "XDG_STATE_HOME": str(self.state_home),
            "COLUMNS": "100",
            **(extra or {}),
        }

    def moorage(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        environment = self.environment(extra)
        return preloaded().run(arguments, self.work, environment, _PATIENCE) or subprocess.run(
            [*MOORAGE, *arguments],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )

    def start(self, *arguments: str, **extra: str) -> Program:
        """Start a command."""
        process = subprocess.Popen(
            [*MOORAGE, *arguments],
            cwd=self.work,
            env=self.environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = Program(process)
        self.started.append(program)
        return program


class Program:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """Its next line; fails when there is none."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.ended()}"
        return line

    def document(self) -> dict[str, Any]:
        """Its next line, as JSON."""
        document: dict[str, Any] = json.loads(self.line())
        return document

    def told(self) -> str:
        """Its next line of errors and hints."""
        assert self.process.stderr
        return self.process.stderr.readline()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; gives exit code and what was left on both outputs."""
        assert self.process.stdout
        assert self.process.stderr
        # Not communicate(): it would miss what reading lines has buffered.
        with ThreadPoolExecutor(1) as beside, self.process.stdout as stdout, self.process.stderr as stderr:
            errors = beside.submit(stderr.read)
            output = stdout.read()
            return self.process.wait(), output, errors.result()

    def abandoned(self) -> tuple[int, str]:
        """Read no more, and wait for its end; gives exit code and errors."""
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdout.close()
        with self.process.stderr as stderr:
            errors = stderr.read()
        return self.process.wait(), errors

    def kill(self) -> None:
        """End it as a lost machine does. Fine when it has ended."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def error_of(errors: str) -> dict[str, Any]:
    """The one error that a command with --json told, beside hints."""
    documents = map(json.loads, errors.splitlines())
    [error] = [document["error"] for document in documents if "hint" not in document]
    found: dict[str, Any] = error
    return found


@contextlib.contextmanager
def up(place: Place, *arguments: str, **extra: str) -> Iterator[tuple[Program, dict[str, Any]]]:
    """`moorage up` on free ports for the block, and what it announces."""
    program = place.start("up", "--listen", "127.0.0.1:0", "--json", *arguments, **extra)
    try:
        yield program, program.document()
    finally:
        if program.process.poll() is None:
            program.signal(signal.SIGTERM)
            program.ended()


@contextlib.contextmanager
def database_like(url: str, template: str) -> Iterator[str]:
    """A clone of a database of the server for a block that is no coroutine; gives its URL."""
    name = f"up_{secrets.token_hex(6)}"
    _execute(url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    try:
        yield in_database(url, name)
    finally:
        _execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')


def _execute(url: str, statement: str) -> None:
    with ThreadPoolExecutor(1) as beside:
        beside.submit(asyncio.run, execute(url, statement)).result()


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
