"""What deploy/compose.yaml makes of an engine, under a name of its own, and what a test does to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker

from tests.conditions import eventually

COMPOSE_FILE: Final = Path(__file__).parents[2] / "deploy" / "compose.yaml"
BUILT: Final = Path(__file__).parents[2] / "build" / "ci" / "bin" / "docker-compose"
IMAGES: Final = ("moorage:latest", "moorage-test:postgres")
UID: Final = 10001
# Longer than anything here takes on a busy machine.
PATIENCE: Final = 120.0
# Who was killed is missed sooner than by default; who is stopped may take its time.
SETTINGS: Final = """\
MOORAGE_RUNNER_LEASE_TTL=8
MOORAGE_WORKSPACE_LEASE_TTL=6
MOORAGE_RUNNER_DRAIN_TIMEOUT=60
"""


def compose_command() -> list[str] | None:
    """Docker Compose of version 2, as a plugin or by itself; None without one."""
    for command in (["docker", "compose"], [str(BUILT)], ["docker-compose"]):
        if shutil.which(command[0]) and _succeeds(*command, "version"):
            shown = subprocess.run([*command, "version", "--short"], capture_output=True, text=True)
            if not shown.stdout.startswith("1."):
                return command
    return None


def missing() -> str:
    """Why nothing can be deployed here; empty when it can."""
    if not _succeeds("docker", "info"):
        return "no Docker engine answers: `make engine`"
    if not _succeeds("docker", "image", "inspect", *IMAGES):
        return "the images are not there: `make image`"
    return "" if compose_command() else "there is no Docker Compose: `make compose`"


@dataclass(frozen=True)
class Deployment:
    """One of a test run; `directory` is the engine's too, by the same path."""

    name: str
    directory: Path
    command: tuple[str, ...]

    @property
    def state(self) -> Path:
        """Where the directories of workspaces are."""
        return self.directory / "state"

    def prepare(self) -> None:
        """What deploy/README.md has an operator do before the first start."""
        self.state.mkdir()
        os.chown(self.state, UID, UID)
        (self.directory / "password").write_text("a /strange@ password\n")
        (self.directory / "settings.env").write_text(SETTINGS)
        (self.directory / "secrets" / "default").mkdir(parents=True)
        (self.directory / "secrets" / "default" / "token").write_text("a secret")
        engine = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
        variables = {
            "MOORAGE_NAME": self.name,
            "MOORAGE_STATE": self.state,
            "MOORAGE_SECRETS": self.directory / "secrets",
            "MOORAGE_SETTINGS": self.directory / "settings.env",
            "MOORAGE_HEALTH_INTERVAL": "3s",
            **dict(zip(("MOORAGE_PORT_A", "MOORAGE_PORT_B"), free_ports(2), strict=True)),
            "POSTGRES_IMAGE": "moorage-test:postgres",
            "DATABASE_PASSWORD_FILE": self.directory / "password",
            "DOCKER_SOCKET": engine,
            "DOCKER_GROUP": engine.stat().st_gid,
        }
        lines = [f"{name}={value}\n" for name, value in variables.items()]
        (self.directory / ".env").write_text("".join(lines))

    def compose(self, *arguments: str, within: float = PATIENCE) -> str:
        """Run a command of Compose to its end; what it printed."""
        command = [*self.command, "--file", str(COMPOSE_FILE), "--env-file", str(self.directory / ".env")]
        return output_of(*command, *arguments, within=within)

    def address(self, service: str) -> str:
        """Where a session service is published."""
        return self.compose("port", service, "7801").strip()

    def containers(self) -> dict[str, dict[str, Any]]:
        """All of the project, as the engine describes them, by service."""
        with contextlib.closing(docker.from_env()) as engine:
            found = engine.containers.list(all=True, filters={"label": self._label})
            return {one.labels["com.docker.compose.service"]: one.attrs for one in found}

    def leftovers(self) -> str:
        """What the engine still has of the project."""
        kinds = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        named = f"label={self._label}"
        return "".join(output_of("docker", *kind, "--quiet", "--filter", named) for kind in kinds)

    async def crash(self, service: str) -> None:
        """SIGKILL to its process, from inside, so that the engine sees a crash; return when it was started again."""
        before = self.containers()[service]["RestartCount"]
        await asyncio.to_thread(self.compose, "exec", "-T", service, "sh", "-c", KILL)

        def is_started() -> bool:
            return bool(self.containers()[service]["RestartCount"] > before)

        await eventually(is_started, within=PATIENCE, what=f"{service} was started again")

    async def healthy(self, service: str) -> None:
        """Return when it is."""

        def is_healthy() -> bool:
            return bool(self.containers()[service]["State"]["Health"]["Status"] == "healthy")

        await eventually(is_healthy, within=PATIENCE, what=f"{service} is healthy")

    @property
    def _label(self) -> str:
        return f"com.docker.compose.project={self.name}"


# The only child of the init process.
KILL: Final = "kill -KILL $(cat /proc/1/task/1/children)"


def output_of(*command: str, within: float = PATIENCE) -> str:
    """What a command prints; it must succeed."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=within)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def free_ports(count: int) -> list[int]:
    """Ports that nobody serves on. A service that starts again is to be found where it was, so the engine chooses none."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
