"""Fills workspaces that are being made from their sources, each in a process of its own (W10)."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from services.common.logs import get_logger
from services.workspace.exec.commands import Command, Commands
from services.workspace.exec.forkserver import ForkServer
from services.workspace.exec.output import Channel
from services.workspace.exec.process import Process, StartFailed
from services.workspace.providers.directories import pinned
from services.workspace.providers.registry import Refused
from services.workspace.sources.wanted import Archive, Git
from services.workspace.workspaces import Workspace

_FETCHER: Final = str(Path(__file__).resolve().parent / "fetch")
_TRIES: Final = 4
_LONGEST_ANSWER: Final = 16 * 1024

_log: Final = get_logger(__name__)

Uploaded = Callable[[str, str, str], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Means:
    """What sources may be: from which hosts, inside which root but not below `state`, how much.

    `size` and `memory` in bytes, `timeout` in seconds. `path` is where programs are found.
    """

    hosts: tuple[str, ...]
    root: str
    state: str
    path: str
    size: int
    entries: int
    memory: int
    timeout: float


class _Failed(Exception):
    """Not this time; the text says why."""


class Filling:
    """One per instance."""

    def __init__(self, commands: Commands, fork_server: ForkServer, uploaded: Uploaded, means: Means) -> None:
        """`uploaded` gives an archive by project, workspace and sum."""
        self._commands = commands
        self._fork_server = fork_server
        self._uploaded = uploaded
        self._means = means

    async def fill(self, workspace: Workspace) -> None:
        """Put its source into the root, which is emptied first; Refused after a few tries.

        What a try that was killed has left lies in one directory of its own in there, until the next
        try or the removal of the workspace.
        """
        source = workspace.spec.source if workspace.spec else None
        if not isinstance(source, Git | Archive):
            return
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_Failed),
                stop=stop_after_attempt(_TRIES),
                wait=wait_exponential(0.2, 5.0),
                reraise=True,
            ):
                with attempt:
                    await self._try(workspace, source)
        except _Failed as error:
            raise Refused(f"its source could not be fetched, {_TRIES} times: {error}") from error

    async def _try(self, workspace: Workspace, source: Git | Archive) -> None:
        answer = await self._run(workspace, await self._input(workspace, source))
        if "rejected" in answer:
            raise Refused(f"its source is refused: {answer['rejected']}")
        if "failed" in answer:
            _log.warning("a source could not be fetched", root=workspace.root, cause=answer["failed"])
            raise _Failed(answer["failed"])

    async def _run(self, workspace: Workspace, data: bytes) -> dict[str, Any]:
        said, complained = bytearray(), bytearray()

        def take(channel: Channel, piece: bytes) -> None:
            kept = said if channel is Channel.STDOUT else complained
            kept.extend(piece[: _LONGEST_ANSWER - len(kept)])

        async def spawn() -> Process:
            with pinned(workspace.root, workspace.root) as directory:
                return self._fork_server.spawn(directory, None)

        means = self._means
        command = Command((sys.executable, "-I", "-S", _FETCHER), {"PATH": means.path}, means.timeout, data)
        try:
            ended = await self._commands.run(workspace, spawn, command, take)
        except StartFailed as error:
            raise _Failed(str(error)) from error
        if ended.timed_out:
            raise Refused(f"its source was not there after {means.timeout:g} s")
        try:
            answer: dict[str, Any] = json.loads(said)
        except ValueError:
            _log.error("a fetch died", root=workspace.root, output=complained.decode(errors="replace"))
            raise _Failed("the process that fetches it died") from None
        return answer

    async def _input(self, workspace: Workspace, source: Git | Archive) -> bytes:
        job = {"kind": "archive", "ref": "", "commit": "", "sha256": ""} | _asked(source) | self._bounds()
        data = b""
        if isinstance(source, Archive) and not source.url:
            found = await self._uploaded(workspace.project, workspace.workspace_id, source.sha256)
            if found is None:
                raise Refused("the archive that was uploaded is not kept any more")
            data = found
        return json.dumps(job).encode() + b"\n" + data

    def _bounds(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self._means).items() if name != "timeout"}


def _asked(source: Git | Archive) -> dict[str, str]:
    return {"kind": "git" if isinstance(source, Git) else "archive", **asdict(source)}
