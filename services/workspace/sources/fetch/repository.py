"""Calls of git that are ruled by nothing but what is said here.

No configuration of the machine or of a user, no prompts, no credentials, no hooks, no filters,
no protocol but the one that was asked for, and no host but the one that was judged.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from services.workspace.sources.fetch.bounds import Rejected
from services.workspace.sources.fetch.web import NotNow

_LONGEST_TOLD: Final = 400
_CHUNK: Final = 64 * 1024
_USERINFO: Final = re.compile(r"://[^/@\s]+@")

_CONFIGURATION: Final = """\
[core]
    askPass =
    attributesFile = /dev/null
    excludesFile = /dev/null
    fsmonitor = false
    hooksPath = /dev/null
    packedGitLimit = 256m
    packedGitWindowSize = 32m
    protectHFS = true
    protectNTFS = true
    sshCommand = false
[credential]
    helper =
[fetch]
    recurseSubmodules = false
    unpackLimit = 1
    writeCommitGraph = false
[gc]
    auto = 0
[http]
    followRedirects = false
    lowSpeedLimit = 1000
    lowSpeedTime = 60
    proxy =
[index]
    threads = 1
[init]
    templateDir =
[maintenance]
    auto = false
[pack]
    threads = 1
[safe]
    directory = *
[submodule]
    recurse = false
[transfer]
    bundleURI = false
"""


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one directory; `home` is an empty one of its own."""

    directory: str
    home: str
    path: str
    protocol: str

    def prepare(self, pins: Sequence[str]) -> None:
        """Write down its rules. `pins` say which addresses hosts have, as `http.curloptResolve` does."""
        text = _CONFIGURATION + "[http]\n" + "".join(f'    curloptResolve = "{pin}"\n' for pin in pins)
        Path(self.home, "config").write_text(text, encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """What it prints; Rejected or NotNow with the end of what it complains about."""
        ended = subprocess.run(
            ["git", *arguments],
            check=False,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="surrogateescape",
        )
        if ended.returncode != 0:
            raise failure(arguments[0], ended.returncode, ended.stderr)
        return ended.stdout

    def succeeds(self, *arguments: str) -> bool:
        """Whether it ends with 0; what it prints is dropped."""
        return (
            subprocess.run(
                ["git", *arguments],
                check=False,
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
            ).returncode
            == 0
        )

    def lines(self, *arguments: str) -> Iterator[bytes]:
        """What it prints, parted by NUL, without keeping it. It ends when nobody asks for more."""
        with subprocess.Popen(
            ["git", *arguments],
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                if process.stdout is not None:
                    yield from _parted(process.stdout)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise NotNow(f"git {arguments[0]} failed")

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": self.path,
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "GIT_ALLOW_PROTOCOL": self.protocol,
            "GIT_ASKPASS": "",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(Path(self.directory).parent),
            "GIT_CONFIG_GLOBAL": str(Path(self.home, "config")),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }


def failure(what: str, status: int, complaint: str) -> Exception:
    """Why a call failed: for ever when a bound was hit, perhaps not next time otherwise."""
    words = " ".join(_USERINFO.sub("://", complaint).split())[-_LONGEST_TOLD:]
    if status == -signal.SIGXFSZ or "File too large" in words or "signal 25" in words:
        return Rejected("it is larger than what is allowed")
    if "out of memory" in words.lower() or "Cannot allocate memory" in words:
        return Rejected("it needs more memory than what is allowed")
    return NotNow(f"git {what}: {words or f'ended with {status}'}")


def _parted(output: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while data := os.read(output.fileno(), _CHUNK):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole
