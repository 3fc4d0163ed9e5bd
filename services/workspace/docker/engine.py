"""The engine, off the event loop and in bounded time: what it says, or that it does not say (W3, W5)."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import math
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException

from services.common.logs import get_logger
from services.workspace.docker.threads import Call, Threads
from services.workspace.providers.registry import Silent, Unasked

T = TypeVar("T")

_UNIX: Final = "unix://"
_ITS_OWN_FAULT: Final = 500
_GROUPS_ACCESS: Final = stat.S_IRGRP | stat.S_IWGRP
# How often it is asked whether it is there: seconds while it is, and while it is not.
_LOOK: Final = 10.0
_LOOK_AGAIN: Final = 1.0

_log: Final = get_logger(__name__)


class Away(Silent):
    """It does not answer."""


class Busy(Silent):
    """It was not asked, as there are too many calls of it; that says nothing about it."""


class Engine:
    """Finds its way back to an engine that was away.

    What the engine refuses (statuses 4xx) is raised as the library does. Everything else that
    fails is Unasked: nothing is known then, neither that something is there nor that it is not.
    """

    def __init__(self, address: str, *, threads: int, timeout: float, expected: bool = True) -> None:
        """`timeout`: seconds for one call, and as many for its wait for one of the `threads`.

        `expected`: whether it is worth a warning that there is no engine.
        """
        self.address: Final = address
        self._threads = Threads(threads)
        self._timeout = timeout
        self._expected = expected
        self._most = threads
        self._client: docker.DockerClient | None = None
        self._making = threading.Lock()
        self._cause = ""
        self._stirred = asyncio.Event()
        self._on_back: list[Callable[[], None]] = []

    @property
    def socket(self) -> str:
        """Where it listens on this machine, without links; empty when it does not."""
        if not self.address.startswith(_UNIX):
            return ""
        return os.path.realpath(self.address.removeprefix(_UNIX))

    @property
    def cause(self) -> str:
        """Why it did not answer last time; empty when it did, or was never asked."""
        return self._cause

    def on_back(self, tell: Callable[[], None]) -> None:
        """Have this called when it answers again after it did not: by then everything may be different."""
        self._on_back.append(tell)

    async def call(self, work: Callable[[docker.DockerClient], T]) -> T:
        """What `work` makes of a client, in a thread. Unasked, and errors of the library."""
        return await self.answer(self.begin(work))

    def begin(self, work: Callable[[docker.DockerClient], T]) -> Call[T]:
        """The same, to be asked later on whether it is over: it goes on when nobody waits."""
        return self._threads.submit(partial(self._do, work))

    async def answer(self, call: Call[T]) -> T:
        """What came of it. What has not been begun when this is cancelled never is."""
        try:
            result = await self._bounded(call)
        except Busy:
            raise
        except Away as error:
            self._missed(str(error))
            raise
        except (APIError, Unasked):
            self._heard()
            raise
        self._heard()
        return result

    async def _bounded(self, call: Call[T]) -> T:
        """Its result. Away if the engine takes too long, Busy if the wait for a thread does."""
        answer = asyncio.wrap_future(call)
        try:
            await asyncio.wait([answer], timeout=self._timeout)
            if not answer.done():
                if call.cancel() or call.begun is None:
                    raise Busy(f"the engine is busy with {self._most} calls that came before")
                await asyncio.wait([answer], timeout=call.begun + self._timeout - time.monotonic())
            if not answer.done():
                raise Away(f"the engine does not answer within {self._timeout:g} s")
            return answer.result()
        finally:
            call.cancel()
            answer.cancel()

    async def look(self) -> None:
        """Ask whether it is there."""
        with contextlib.suppress(Unasked, APIError):
            await self.call(lambda client: client.ping())

    async def rest(self) -> None:
        """Return when it should be asked again: soon while it is away, at once when a call finds that it is.

        So its return is noticed soon, whoever missed it. While it is there `stir` ends the rest, too.
        """
        if self._cause:
            await asyncio.sleep(_LOOK_AGAIN)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._stirred.wait()
        self._stirred.clear()

    def stir(self) -> None:
        """Somebody wants to know now."""
        self._stirred.set()

    def close(self) -> None:
        """Ask it nothing any more."""
        self._threads.close()
        if self._client is not None:
            self._client.close()

    def _do(self, work: Callable[[docker.DockerClient], T]) -> T:
        try:
            self._reach()
            return work(self._connected())
        except APIError as error:
            if error.response is None or error.response.status_code >= _ITS_OWN_FAULT:
                raise Unasked(f"the engine: {error.explanation or error}") from error
            raise
        except (DockerException, requests.RequestException, urllib3.exceptions.HTTPError) as error:
            if _is_silence(error):
                raise Away(f"the engine does not answer within {self._timeout:g} s") from error
            raise Away(f"the engine at {self.address}: {error}") from error

    def _reach(self) -> None:
        """Away at once, and with a cause for people, when nobody listens."""
        if not self.address.startswith(_UNIX):
            return
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(self._timeout)
            try:
                probe.connect(self.address.removeprefix(_UNIX))
            except PermissionError as error:
                raise Away(
                    f"no access to the engine at {self.address}: {error.strerror}{_advice(self.socket)}"
                ) from error
            except OSError as error:
                raise Away(f"no engine at {self.address}: {error.strerror or error}") from error

    def _connected(self) -> docker.DockerClient:
        """Made when it can be, as it asks the engine for its version."""
        with self._making:
            if self._client is None:
                timeout = math.ceil(self._timeout)
                self._client = docker.DockerClient(self.address, timeout=timeout, max_pool_size=self._most)
            return self._client

    def _missed(self, cause: str) -> None:
        if not self._cause:
            log = _log.warning if self._expected else _log.debug
            log("the engine cannot be asked", address=self.address, cause=cause)
        self._cause = cause
        self._stirred.set()

    def _heard(self) -> None:
        if self._cause:
            self._cause = ""
            _log.info("the engine answers again", address=self.address)
            for tell in self._on_back:
                tell()


def _advice(path: str) -> str:
    """What would give access to a socket: its group, if that has any."""
    with contextlib.suppress(OSError):
        found = Path(path).stat()
        if found.st_mode & _GROUPS_ACCESS == _GROUPS_ACCESS:
            return f"; whoever runs this service must be in group {_group(found.st_gid)}"
    return ""


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_silence(error: Exception) -> bool:
    """Nothing came in time, as the libraries below say it: by its kind, or by what it wraps."""
    kinds = (requests.Timeout, urllib3.exceptions.TimeoutError)
    return any(isinstance(each, kinds) for each in (error, *error.args))
