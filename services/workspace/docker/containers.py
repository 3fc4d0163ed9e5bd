"""Containers of workspaces: how they are made, and what becomes of them. All of it blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

from services.workspace.docker.exec.helper import HELPER_PATH
from services.workspace.docker.labels import Labels
from services.workspace.providers.registry import PassedBy, Refused, Unusable
from services.workspace.specs import Spec

HOME: Final = "/home/moorage"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HELPERS: Final = str(Path(HELPER_PATH).parent)
_CONFLICT: Final = 409
# In an engine's words: what is to be mounted is not there.
_UNSEEN: Final = "bind source path does not exist"
_NOT_FOUND: Final = 404
_BILLION: Final = 10**9
# On their way out: nothing can be done with them any more.
LEAVING: Final = frozenset({"removing", "dead"})


@dataclass(frozen=True, slots=True)
class User:
    """Who a container's processes are; never root (W5)."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of this machine that a container gets: the workspace's where it is, home and helper."""

    root: str
    home: str
    helper: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A container to be made. `network` is the engine's name of one."""

    labels: Labels
    spec: Spec
    network: str
    places: Places
    user: User


@dataclass(frozen=True, slots=True)
class Container:
    """A container as it stands; `environment` is what its image gives its processes.

    `started` is when, as the engine writes it.
    """

    id: str
    status: str
    running: bool
    started: str
    labels: dict[str, str]
    environment: tuple[str, ...]
    error: str
    helper: str
    """The directory of this machine that it has its helper from, mounted; empty without one."""

    @property
    def is_leaving(self) -> bool:
        """Whether nothing can be done with it any more."""
        return self.status in LEAVING


@dataclass(frozen=True, slots=True)
class Made:
    """A container that was wanted; `ran` when it was found, and may have run for long."""

    id: str
    ran: bool = False


def create(wanted: Wanted, client: docker.DockerClient) -> Made:
    """Make it, not started. Refused, PassedBy, Unusable; one that has exactly its labels is adopted."""
    api: Any = client.api
    try:
        made = api.create_container(
            image=wanted.spec.image,
            name=wanted.labels.name,
            labels=wanted.labels.to_engine(),
            entrypoint=[HELPER_PATH, "init"],
            command=[],
            user=f"{wanted.user.uid}:{wanted.user.gid}",
            working_dir=wanted.places.root,
            # What the image wants to be run now and then would run as part of no exec.
            healthcheck={"test": ["NONE"]},
            host_config=_bounds(wanted, api),
        )
    except NotFound as error:
        raise Refused(f"the engine has no image {wanted.spec.image}: {error.explanation}") from error
    except APIError as error:
        if error.status_code == _CONFLICT:
            return adopt(wanted.labels, client)
        if _UNSEEN in (error.explanation or ""):
            raise Unusable(
                f"the engine must have the directories of this instance at the same paths: {error.explanation}"
            ) from error
        raise
    return Made(str(made["Id"]))


def _bounds(wanted: Wanted, api: Any) -> Any:
    """What its processes may do and use (W5). The engine's socket is never among the mounts."""
    limits = wanted.spec.limits
    memory = limits.memory_bytes or 0
    return api.create_host_config(
        mounts=_mounts(wanted.places),
        tmpfs={"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={memory // 2}"},  # noqa: S108 (not ours)
        network_mode=wanted.network,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        privileged=False,
        ipc_mode="private",
        init=False,
        nano_cpus=round((limits.cpus or 0) * _BILLION),
        mem_limit=memory,
        # Swap is none of its own: a limit is a limit.
        memswap_limit=memory,
        pids_limit=limits.pids,
        restart_policy={"Name": "no"},
        log_config=docker.types.LogConfig(type="none"),
    )


def _mounts(places: Places) -> list[docker.types.Mount]:
    """None can be written to that others have as well."""
    return [
        docker.types.Mount(places.root, places.root, type="bind"),
        docker.types.Mount(HOME, places.home, type="bind"),
        docker.types.Mount(_HELPERS, places.helper, type="bind", read_only=True),
    ]


def adopt(labels: Labels, client: docker.DockerClient) -> Made:
    """What has the name of one that is to be made, if it has its labels as well. Refused, PassedBy."""
    found = inspect(labels.name, client)
    if found is None or found.is_leaving:
        raise PassedBy(f"the engine keeps the name {labels.name} of a container that is gone or going")
    if not labels.are(found.labels):
        raise Refused(f"the name {labels.name} is taken by container {found.id[:12]}, which is not ours")
    return Made(found.id, found.running)


def inspect(name: str, client: docker.DockerClient) -> Container | None:
    """One by its name or id; None when the engine says that there is none."""
    api: Any = client.api
    try:
        found = api.inspect_container(name)
    except NotFound:
        return None
    state, config = found["State"], found["Config"]
    return Container(
        id=found["Id"],
        status=state["Status"],
        running=state["Running"],
        started=state["StartedAt"],
        labels=config["Labels"] or {},
        environment=tuple(config["Env"] or ()),
        error=state["Error"],
        helper=next((each["Source"] for each in found["Mounts"] if each["Destination"] == _HELPERS), ""),
    )


def start(container_id: str, client: docker.DockerClient) -> None:
    """Start it, unless it runs."""
    api: Any = client.api
    api.start(container_id)


def kill(container_id: str, client: docker.DockerClient) -> None:
    """Have it not run."""
    api: Any = client.api
    try:
        api.kill(container_id)
    except APIError as error:
        if error.status_code not in (_CONFLICT, _NOT_FOUND):
            raise


def stop(found: Container, client: docker.DockerClient) -> None:
    """Have it not run, unless it was started again since it was found."""
    now = inspect(found.id, client)
    if now is not None and now.started == found.started:
        kill(found.id, client)


def select(filters: dict[str, list[str]], client: docker.DockerClient) -> Sequence[dict[str, Any]]:
    """All that the filters let through, whatever their state, as the engine's list says."""
    api: Any = client.api
    found: Sequence[dict[str, Any]] = api.containers(all=True, filters=filters)
    return found


def remove(container_ids: Iterator[str] | Sequence[str], client: docker.DockerClient) -> None:
    """Have them killed and removed, with what volumes of their own they have.

    That they are gone is for another look: one may be removed by somebody else just now (W3).
    """
    api: Any = client.api
    for container_id in container_ids:
        try:
            api.remove_container(container_id, v=True, force=True)
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != _CONFLICT:
                raise


def connect(container_id: str, network: str, client: docker.DockerClient) -> None:
    """Make this its only network; none of its processes notices but by what it can reach."""
    api: Any = client.api
    joined = api.inspect_container(container_id)["NetworkSettings"]["Networks"]
    for name in joined:
        if name != network:
            api.disconnect_container_from_network(container_id, name, force=True)
    if network not in joined:
        api.connect_container_to_network(container_id, network)
