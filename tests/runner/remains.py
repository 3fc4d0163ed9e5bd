"""What is there of a stack's agents: processes, execs, paths, leases. Looked at, never asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.workspace.exec.marker import FORK_SERVER, Marker
from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.holding import live_leases
from tests.runner.parts import Stack


class Remains:
    """Takes note of what there is, and tells what there is besides later."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._paths = set(_paths(stack))

    def execs(self) -> list[str]:
        """The execs of the workspace instance."""
        return [each.exec_id for each in self._stack.workspace.service.instance._execs.all()]

    def processes(self) -> list[int]:
        """Living processes that were started for sessions, by the kernel's table."""
        deployment = self._stack.workspace.service.instance.marker.deployment
        return [pid for pid, marker in marked() if marker.deployment == deployment]

    def new_paths(self) -> set[str]:
        """Files and directories that were not there before."""
        return set(_paths(self._stack)) - self._paths

    async def nothing(self) -> None:
        """At this moment nothing is left, but perhaps the runner's own clearing away."""
        assert self.execs() == []
        assert self.processes() == []
        assert self.new_paths() == set()

        async def no_lease() -> bool:
            return await live_leases(self._stack.owner.endpoint) == []

        await eventually(no_lease, what="the session's lease was released")


def marked() -> Iterator[tuple[int, Marker]]:
    """The processes of execs, their shims excepted: what only waits for orders belongs to no session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                marker = Marker.read((entry / "environ").read_bytes())
            except OSError:
                continue
            if marker is not None and marker.exec_id != FORK_SERVER:
                yield int(entry.name), marker


def _paths(stack: Stack) -> Iterator[str]:
    for top in (stack.root, stack.state):
        for directory, names, files in os.walk(top):
            yield from (str(Path(directory, name)) for name in (*names, *files))
