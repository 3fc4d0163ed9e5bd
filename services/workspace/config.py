"""Settings of a workspace instance: flags, MOORAGE_WORKSPACE_*, then MOORAGE_*."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from services.common.settings import (
    CommonSettings,
    DatabaseSettings,
    ListenAddress,
    PositiveSeconds,
    Seconds,
    ServiceSettings,
)


class EngineSettings(CommonSettings):
    """Where the Docker engine is."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_WORKSPACE_")

    docker_host: str = Field(
        default_factory=lambda: os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"),
        description="address of the Docker engine; without it that of DOCKER_HOST",
    )


class WorkspaceSettings(ServiceSettings, DatabaseSettings, EngineSettings):
    """All settings; durations are in seconds, paths absolute and without links once read."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_WORKSPACE_")

    listen: ListenAddress = Field(
        "127.0.0.1:7802", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    owner_address: str = Field("127.0.0.1:7800", description="gRPC target of owner")
    session_address: str = Field(
        "",
        description="gRPC target of the session service, asked whether workspaces that nobody claimed have "
        "a session; without it they are kept",
    )
    instance_id: str = Field(
        "local",
        description="holds the lease instances/ID; different for each instance, the same when it starts again",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
    )
    root: Path = Field(
        Path(),
        validate_default=True,
        description="directory in which supplied directories must lie; not named, none can be the source of a container",
    )
    default_directory: Path | None = Field(
        None, description="directory of sessions that name none; absolute, inside the root"
    )
    state_directory: Path = Field(
        Path(".moorage/workspaces"),
        validate_default=True,
        description="directory in which provisioned directories are made",
    )
    local_enabled: bool = Field(
        True,
        description="run agents as processes of this instance, with all its rights; off, for one that commands an engine",
    )
    provision_enabled: bool = Field(True, description="make new directories; removal always works")
    provision_timeout: PositiveSeconds = Field(900.0, description="until a workspace that is not made fails")
    collect_interval: PositiveSeconds = Field(60.0, description="between looks for what should not be there")
    unclaimed_after: PositiveSeconds = Field(
        600.0, description="after which a workspace whose session is not stored is removed"
    )
    project_quota: int | None = Field(
        None, description="most workspaces made for one project; without it there is no bound", ge=1
    )
    source_hosts: tuple[str, ...] = Field(
        ("*",),
        description="globs of HOST or HOST:PORT that git and archives may come from; `*` and `*:PORT` are every "
        "host whose addresses are all public, hosts that others name may have any",
    )
    source_bytes: int = Field(1 << 30, description="most that a source may be, packed and unpacked", ge=1)
    source_files: int = Field(200_000, description="most files, directories and links in a source", ge=1)
    source_memory: int = Field(
        1 << 30, description="most bytes of memory that fetching a source may take", ge=1 << 26
    )
    source_timeout: PositiveSeconds = Field(600.0, description="until a source that is not there fails")
    docker_enabled: bool = Field(
        True, description="make new containers, if there is an image; removal always works"
    )
    docker_images: tuple[str, ...] = Field(
        (), description="images that workspaces may have, the default one first; they are never pulled"
    )
    docker_cpus: float = Field(1.0, description="processors of a container, and the most to ask for", ge=0.01)
    docker_memory: int = Field(
        512 * 1024 * 1024, description="bytes of memory, and the most to ask for", ge=16 * 1024 * 1024
    )
    docker_pids: int = Field(256, description="processes, and the most to ask for", ge=8)
    docker_network: Literal["none", "bridge"] = Field("none", description="what containers reach by default")
    docker_bridge_network: str = Field(
        "bridge",
        description="the engine's network of containers with bridge; empty: there is none to ask for",
    )
    docker_uid: int = Field(
        10001, description="user of containers' processes when the instance runs as root, else its own", ge=1
    )
    docker_gid: int = Field(10001, description="their group, likewise", ge=1)
    docker_threads: int = Field(8, description="calls of the engine at a time", ge=1)
    docker_timeout: PositiveSeconds = Field(30.0, description="until the engine is taken not to answer")
    first_retry: PositiveSeconds = Field(0.2, description="before failed work is tried again; doubles")
    longest_retry: PositiveSeconds = Field(15.0, description="between later tries")
    lease_ttl: float = Field(15.0, description="length of the instance's lease", ge=2, le=3600)
    max_clock_skew: PositiveSeconds = Field(1.0, description="by which clocks of services may be apart")
    expiry_margin: PositiveSeconds = Field(
        1.0,
        description="before a grant's end at which its processes are killed; at most a quarter of what is left",
    )
    predecessor_grace: Seconds = Field(
        2.0, description="that a predecessor's shims have to clean up before everything is killed"
    )

    @property
    def named_root(self) -> str:
        """The root if somebody named it, else empty: an engine need not see where this process was started.

        Nobody named it who only said that it is empty.
        """
        return str(self.root) if "root" in self.model_fields_set else ""

    @model_validator(mode="before")
    @classmethod
    def _forget_empty_root(cls, values: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in values.items() if (name, value) != ("root", "")}

    @field_validator("root", "default_directory", "state_directory")
    @classmethod
    def _resolve(cls, path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    @field_validator("default_directory", mode="before")
    @classmethod
    def _check_absolute(cls, value: object) -> object:
        if isinstance(value, str | Path) and not Path(value).is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @model_validator(mode="after")
    def _check_directories(self) -> Self:
        if not self.root.is_dir():
            raise ValueError(f"--root: {self.root} is not a directory")
        if self.default_directory is not None and not self.default_directory.is_relative_to(self.root):
            raise ValueError(f"--default-directory: {self.default_directory} lies outside --root {self.root}")
        if self.root.is_relative_to(self.state_directory):
            raise ValueError(f"--state-directory: {self.state_directory} must not contain --root {self.root}")
        return self
