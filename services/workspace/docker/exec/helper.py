"""The helper: the program that every container has, and where it is found.

Its source is in `helper/`; `make helper` builds it for each kind of machine.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from services.workspace.providers.registry import Unusable

HELPER_PATH: Final = "/.moorage/exec"
"""Where it is in a container. `HELPER_PATH init` is the container's first process."""

BUILT: Final = Path(__file__).with_name("helper") / "built"
"""Where it is on this machine, by the kind of machine that it runs on."""

# By what engines and kernels call them.
_MACHINES: Final = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}

_NO_FILE: Final = os.strerror(errno.ENOENT).lower()


class HelperMissing(Unusable):
    """The helper is not there for this kind of machine; the text says why."""


def helper_program(architecture: str) -> bytes:
    """For an engine's kind of machine. HelperMissing, OSError."""
    return _path(architecture).read_bytes()


def why_missing(architecture: str) -> str:
    """Why there is no helper for an engine's kind of machine; empty when there is one."""
    try:
        _path(architecture)
    except HelperMissing as error:
        return str(error)
    return ""


def is_missing(words: str) -> bool:
    """Whether an engine says that a container has none."""
    return HELPER_PATH in words and _NO_FILE in words


def _path(architecture: str) -> Path:
    machine = _MACHINES.get(architecture.lower())
    if machine is None:
        raise HelperMissing(f"there is no helper for containers of {architecture} machines")
    path = BUILT / machine
    if not path.is_file():
        raise HelperMissing(f"the helper for containers was not built for {machine}: make helper")
    return path
