"""What a workspace is to have in it at first, and the command that prepares it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Git:
    """A commit of a repository. Without `ref` its HEAD; without `commit` what the ref is."""

    url: str
    ref: str
    commit: str


@dataclass(frozen=True, slots=True)
class Archive:
    """The files of an archive: what `url` leads to or, without one, what was uploaded.

    `sha256` is lower-case hexadecimal; always there for what was uploaded.
    """

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of the instance's machine, mounted as it is."""

    path: str


Source = Git | Archive | Directory


@dataclass(frozen=True, slots=True)
class Setup:
    """A command to run before the workspace is READY; `timeout` in seconds.

    `inherited` are names of variables. `network` is the name of a policy, empty when it is the
    workspace's.
    """

    command: tuple[str, ...]
    inherited: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    timeout: float
    network: str


_KINDS: dict[str, type[Source]] = {"git": Git, "archive": Archive, "directory": Directory}


def source_json(source: Source | None) -> dict[str, Any] | None:
    """As it is stored."""
    if source is None:
        return None
    kind = next(kind for kind, form in _KINDS.items() if isinstance(source, form))
    return {"kind": kind, **asdict(source)}


def source_of(stored: dict[str, Any] | None) -> Source | None:
    """What was stored."""
    if stored is None:
        return None
    return _KINDS[stored["kind"]](**{name: value for name, value in stored.items() if name != "kind"})


def setup_json(setup: Setup | None) -> dict[str, Any] | None:
    """As it is stored."""
    return None if setup is None else asdict(setup)


def setup_of(stored: dict[str, Any] | None) -> Setup | None:
    """What was stored."""
    if stored is None:
        return None
    return Setup(
        command=tuple(stored["command"]),
        inherited=tuple(stored["inherited"]),
        environment=tuple((name, value) for name, value in stored["environment"]),
        timeout=stored["timeout"],
        network=stored["network"],
    )
