"""Secrets: named by sessions, kept in files of the runner, looked up when an agent is started (T5).

A file for each, `<directory>/<project>/<name>`, as Kubernetes and Docker mount them. A project has
none but its own. Values are in the memory of the runner and of what it starts, and nowhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from moorage.common.v1.turn_pb2 import EndReason
from moorage.session.v1.session_pb2 import AgentSpec

from services.common.errors import InvalidArgument
from services.common.validation import check_project, check_secret
from services.runner.endings import TurnFailed

_LARGEST: Final = 64 * 1024


class Secrets:
    """The secrets that this runner has."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory it has none."""
        self._directory = directory

    def reveal(self, project: str, agent: AgentSpec) -> AgentSpec:
        """The agent with values in place of names, for what starts it and for nobody else.

        Reads files. Raises TurnFailed for the first secret that is not there, by its name.
        """
        revealed = AgentSpec()
        revealed.CopyFrom(agent)
        self._fill(project, revealed.environment, revealed.secret_refs)
        for server in revealed.mcp_servers:
            match server.WhichOneof("transport"):
                case "stdio":
                    self._fill(project, server.stdio.environment, server.stdio.secret_refs)
                case "http":
                    self._fill(project, server.http.headers, server.http.secret_refs)
                case "sse":
                    self._fill(project, server.sse.headers, server.sse.secret_refs)
        return revealed

    def _fill(self, project: str, values: MutableMapping[str, str], refs: Mapping[str, str]) -> None:
        for name in sorted(refs):
            values[name] = self._read(project, refs[name])

    def _read(self, project: str, name: str) -> str:
        if self._directory is None:
            raise _unknown(name, "this runner has no secrets (--secrets-directory)")
        try:
            check_project(project)
            check_secret("name", name)
        except InvalidArgument:
            # It would leave the directory; nothing of it is repeated.
            raise _unknown("(unnamed)", "that is no name of one") from None
        path = self._directory / project / name
        try:
            return _content(path)
        except FileNotFoundError:
            raise _unknown(name, f"project {project} has no such secret here") from None
        except (OSError, ValueError) as error:
            # Not the error's own words, which may hold what was read.
            raise _unknown(name, f"it cannot be read ({type(error).__name__})") from None


def _content(path: Path) -> str:
    """The text of a file, without the newline that editors end it with."""
    # Links are followed, which whoever mounts the directory makes; a pipe is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no regular file")
        # Not closed by it: for a directory it fails before it has taken the descriptor.
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > _LARGEST or b"\0" in content:
        raise ValueError("too long, or not a text")
    return content.decode().removesuffix("\n")


def _unknown(name: str, cause: str) -> TurnFailed:
    return TurnFailed(
        EndReason.END_REASON_AGENT_START_FAILED,
        f"the secret {name} is not known: {cause}",
        code="SECRET_UNKNOWN",
        secret=name,
    )
