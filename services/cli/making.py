"""Options that say where a new session works when not in a directory of this machine: a workspace to be made."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2

from services.cli.quantities import bytes_of, duration_of
from services.common.quantities import told_bytes

DOCKER: Final = "docker"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OF_CONTAINERS: Final = ("image", "network", "cpus", "memory", "pids")
# What the session itself tells too little of, or nothing.
_LABELLED: Final = ("cpus", "memory", "pids", "git", "archive", "setup", "empty")
_SOURCES: Final = ("git", "archive", "empty")
_LONGEST_LABEL: Final = 255
_URLS: Final = ("https://", "http://", "file://")
_MOST_BYTES: Final = 768 * 1024


class Network(StrEnum):
    """What a container can be allowed to reach."""

    none = "none"
    bridge = "bridge"


DockerOption = Annotated[bool, typer.Option("--docker", help="For a new session: in a container of its own.")]
ImageOption = Annotated[
    str, typer.Option(metavar="IMAGE", help="With --docker: its image. Default: the service's.")
]
NetworkOption = Annotated[
    Network | None,
    typer.Option(help="With --docker: what it can reach. Default: the service's, mostly none."),
]
CpusOption = Annotated[
    float | None, typer.Option(metavar="NUMBER", min=0.01, help="With --docker: processors, e.g. 0.5.")
]
MemoryOption = Annotated[str, typer.Option(metavar="SIZE", help="With --docker: memory, e.g. 256m or 1g.")]
PidsOption = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="With --docker: processes at the same time.")
]
EmptyOption = Annotated[
    bool,
    typer.Option(
        "--empty", help="For a new session: a workspace with nothing in it, instead of this directory."
    ),
]
GitOption = Annotated[
    str,
    typer.Option(
        metavar="URL[#REF]",
        help="For a new session: a workspace with a repository's branch, tag or commit.",
    ),
]
ArchiveOption = Annotated[
    str,
    typer.Option(
        metavar="FILE|URL", help="For a new session: a workspace with the files of a tar or zip archive."
    ),
]
SetupOption = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help="Run once in the new workspace before its first turn; without a shell, so \"sh -c '…'\" for one.",
    ),
]


@dataclass(frozen=True, slots=True)
class Making:
    """What was asked for; empty and None where nothing was. `provider` may be named, too."""

    provider: str = ""
    docker: bool = False
    image: str = ""
    network: Network | None = None
    cpus: float | None = None
    memory: str = ""
    pids: int | None = None
    git: str = ""
    archive: str = ""
    setup: str = ""
    ttl: str = ""
    idle_ttl: str = ""
    empty: bool = False

    def __bool__(self) -> bool:
        """Whether a workspace is to be made."""
        return self != Making()

    @property
    def in_container(self) -> bool:
        """Whether it is a container."""
        return self.docker or self.provider == DOCKER

    @property
    def has_source(self) -> bool:
        """Whether it was said what is in it: something, or nothing."""
        return bool(self.git or self.archive or self.empty)

    @property
    def first_flag(self) -> str:
        """The first of the options that were given."""
        name = next(field.name for field in fields(self) if getattr(self, field.name))
        return "--provision" if name == "provider" else f"--{name.replace('_', '-')}"

    def labels(self) -> dict[str, str]:
        """What a session that was made so does not tell otherwise."""
        given = ((name, getattr(self, name)) for name in _LABELLED)
        return {f"moorage.{name}": _label(value) for name, value in given if value}

    def spec(self, directory: Path | None = None) -> provision_pb2.ProvisionSpec:
        """The workspace; without another source a container has `directory` in it, as it is and where it is."""
        self.check()
        spec = provision_pb2.ProvisionSpec(
            provider=DOCKER if self.docker else self.provider,
            image=self.image,
            network=_network(self.network),
            limits=self._limits(),
            source=self._source(directory),
            ttl=_duration("--ttl", self.ttl),
            idle_ttl=_duration("--idle-ttl", self.idle_ttl),
        )
        if self.setup:
            spec.setup.command.extend(_words("--setup", self.setup))
        return spec

    def check(self) -> None:
        """Refuse what does not go together."""
        if self.docker and self.provider not in ("", DOCKER):
            raise typer.BadParameter("they exclude each other", param_hint="--docker and --provision")
        sources = [f"--{name}" for name in _SOURCES if getattr(self, name)]
        if len(sources) > 1:
            raise typer.BadParameter("they exclude each other", param_hint=" and ".join(sources))
        for name in _OF_CONTAINERS:
            if getattr(self, name) and not self.in_container:
                raise typer.BadParameter("goes with --docker", param_hint=f"--{name}")

    def _limits(self) -> provision_pb2.ResourceLimits | None:
        memory = bytes_of("--memory", self.memory) if self.memory else None
        limits = provision_pb2.ResourceLimits(cpus=self.cpus, memory_bytes=memory, pids=self.pids)
        return limits if limits.ListFields() else None

    def _source(self, directory: Path | None) -> provision_pb2.WorkspaceSource | None:
        if self.git:
            return provision_pb2.WorkspaceSource(git=_git(self.git))
        if self.archive:
            return provision_pb2.WorkspaceSource(archive=_archive(self.archive))
        if directory is not None and not self.empty:
            return provision_pb2.WorkspaceSource(path=provision_pb2.PathSource(directory=str(directory)))
        return None


def _label(value: object) -> str:
    return "yes" if value is True else str(value)[:_LONGEST_LABEL]


def network_name(network: provision_pb2.NetworkPolicy.ValueType) -> str:
    """As `--network` takes it."""
    return provision_pb2.NetworkPolicy.Name(network).removeprefix("NETWORK_POLICY_").lower()


def _network(network: Network | None) -> provision_pb2.NetworkPolicy.ValueType:
    name = "UNSPECIFIED" if network is None else network.upper()
    return provision_pb2.NetworkPolicy.Value(f"NETWORK_POLICY_{name}")


def _git(text: str) -> provision_pb2.GitSource:
    url, _, which = text.partition("#")
    if _COMMIT.fullmatch(which):
        return provision_pb2.GitSource(url=url, commit=which)
    return provision_pb2.GitSource(url=url, ref=which)


def _archive(text: str) -> provision_pb2.ArchiveSource:
    if text.startswith(_URLS):
        return provision_pb2.ArchiveSource(url=text)
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{text}: {error.strerror}", param_hint="--archive") from error
    if len(data) > _MOST_BYTES:
        raise typer.BadParameter(
            f"{text} has {len(data)} bytes; at most {told_bytes(_MOST_BYTES)} can be sent, larger ones by their URL",
            param_hint="--archive",
        )
    return provision_pb2.ArchiveSource(data=data)


def _words(flag: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} is no command", param_hint=flag) from error


def _duration(flag: str, text: str) -> Duration | None:
    return duration_of(flag, text) if text else None
