"""Connecting where the URL names several hosts: silent ones hold nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# A host that is there answers sooner. One that lost its power, or hangs, never does.
_HEAD_START: Final = 0.5


async def connect(url: str, *, timeout: float, **options: Any) -> Connection:
    """As asyncpg.connect, `timeout` for each host: they are asked in their order, each with a head start.

    The first that gives what is wanted (`target_session_attrs`) is taken. asyncpg by itself waits for
    one host after the other, so that a silent one uses up the time of all.
    """
    urls = single_hosts(url)
    if len(urls) == 1:
        return await asyncpg.connect(url, timeout=timeout, **options)
    return await _Race(urls, {"timeout": timeout, **options}).run()


def single_hosts(url: str) -> list[str]:
    """The URL of each host; those that a query string names are left to asyncpg, in one."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


class _Race:
    """One attempt for each host; what is left of them ends with it."""

    def __init__(self, urls: Sequence[str], options: dict[str, Any]) -> None:
        self._waiting = list(urls)
        self._options = options
        self._running: set[asyncio.Task[Connection]] = set()
        self._failures: list[str] = []

    async def run(self) -> Connection:
        try:
            while self._waiting or self._running:
                self._start_next()
                if winner := await self._next_winner():
                    return winner
        finally:
            await self._end()
        raise ConnectionError(f"no host is as it should be: {'; '.join(self._failures)}")

    def _start_next(self) -> None:
        if self._waiting:
            url = self._waiting.pop(0)
            self._running.add(asyncio.create_task(asyncpg.connect(url, **self._options), name=_host_of(url)))

    async def _next_winner(self) -> Connection | None:
        head_start = _HEAD_START if self._waiting else None
        done, self._running = await asyncio.wait(
            self._running, timeout=head_start, return_when=asyncio.FIRST_COMPLETED
        )
        won = [task for task in done if task.exception() is None]
        self._running.update(won[1:])
        for task in done.difference(won):
            error = task.exception()
            self._failures.append(f"{task.get_name()}: {str(error) or type(error).__name__}")
        return won[0].result() if won else None

    async def _end(self) -> None:
        for task in self._running:
            task.cancel()
        for outcome in await asyncio.gather(*self._running, return_exceptions=True):
            if isinstance(outcome, asyncpg.Connection):
                outcome.terminate()


def _host_of(url: str) -> str:
    """Without the password."""
    return urlsplit(url).netloc.rpartition("@")[2]
