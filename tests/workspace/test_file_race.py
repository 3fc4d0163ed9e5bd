"""Links swapped in while files are read and written: nothing outside is ever read or touched (W7)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.common.errors import MoorageError
from services.workspace.exec.forkserver import ForkServer
from services.workspace.providers.files import Tree
from services.workspace.providers.local import LocalProvider
from services.workspace.providers.registry import Unusable
from services.workspace.workspaces import Origin, Source, Workspace, WorkspaceState
from tests.workspace import swapper
from tests.workspace.filing import Files
from tests.workspace.instances import Client, Holder, Machine
from tests.workspace.swaps import INSIDE, OUTSIDE, Outcomes, check_untouched

ROUNDS = 2000
# What an access may meet while the workspace itself, a directory or a file is a link.
EXPECTED = ("FILE_NOT_FOUND", "WORKSPACE_NOT_READY")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a file and a directory with a file."""
    root = tmp_path / "root" / "workspace"
    (root / "d").mkdir(parents=True)
    for name in ("f", "d/f"):
        (root / name).write_bytes(INSIDE)
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The same names, outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("f", "secret"):
        (outside / name).write_bytes(OUTSIDE)
    return outside


def test_thousands_of_accesses_stay_inside(root: Path, outside: Path) -> None:
    provider = LocalProvider(str(root.parent), "", str(root.parent / "state"), True, ForkServer(), {})
    accesses: dict[str, Callable[[Tree], object]] = {
        "read d/f": lambda tree: tree.read("d/f", 0, 100).data,
        "read f": lambda tree: tree.read("f", 0, 100).data,
        "list d": lambda tree: [entry.name for entry in tree.entries("d", b"", 100).entries],
        "write d/f": lambda tree: tree.replace("d/f", INSIDE, _go_ahead),
        "write f": lambda tree: tree.replace("f", INSIDE, _go_ahead),
        "make d/x/y": lambda tree: tree.replace("d/x/y", INSIDE, _go_ahead),
    }
    outcomes = {name: Outcomes(EXPECTED) for name in accesses}
    with swapping(root, outside):
        for _ in range(ROUNDS):
            for name, access in accesses.items():
                outcomes[name].counted[_outcome(provider, root, access)] += 1
    check_untouched(outside, "f", "secret")
    for outcome in outcomes.values():
        outcome.check()


async def test_calls_stay_inside(
    client: Client, machine: Machine, holder: Holder, root: Path, outside: Path
) -> None:
    await client.adopt(root)
    files = Files(client, await holder.acquire())
    outcomes = Outcomes(EXPECTED)
    with swapping(root, outside):
        await outcomes.call_often(files)
    check_untouched(outside, "f", "secret")
    outcomes.check()


@contextlib.contextmanager
def swapping(root: Path, outside: Path) -> Iterator[None]:
    """Another process swaps within the block."""
    command = [sys.executable, swapper.__file__, str(root.parent), str(root), str(outside)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "swapping\n"
        try:
            yield
            output, _ = process.communicate("", timeout=20)
            assert int(output) > 100
        finally:
            process.kill()


def _outcome(provider: LocalProvider, root: Path, access: Callable[[Tree], object]) -> str:
    try:
        with provider.files(_workspace(root)) as tree:
            found = access(tree)
    except Unusable:
        return "WORKSPACE_NOT_READY"
    except MoorageError as error:
        return error.reason_name
    assert found in (None, INSIDE) or (isinstance(found, list) and "secret" not in found), found
    return "done"


def _go_ahead() -> None:
    """Nothing is in the way."""


def _workspace(root: Path) -> Workspace:
    now = datetime.now(UTC)
    return Workspace(
        project="default",
        workspace_id="w1",
        session_id="s1",
        source=Source.BINDING,
        provider="local",
        directory=str(root),
        asked=None,
        origin=Origin.SUPPLIED,
        state=WorkspaceState.READY,
        state_reason="",
        root=str(root),
        instance_id="i",
        endpoint="",
        token=0,
        attempts=0,
        spec=None,
        generation=1,
        create_time=now,
        update_time=now,
    )
