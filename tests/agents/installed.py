"""Agents that `tools/agents.sh` installs, and what a test says where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "build" / "ci" / "agents" / "node_modules"
OPENCODE = MODULES / "opencode-linux-x64" / "bin"
COMMANDS = MODULES / ".bin"


def needs(program: str, directory: Path = COMMANDS) -> pytest.MarkDecorator:
    """Skips where the agent is not installed."""
    return pytest.mark.skipif(
        not (directory / program).exists(),
        reason=f"{program} is not installed: `make agents` does it, with Node and npm",
    )


def surroundings(home: Path, *directories: Path) -> dict[str, str]:
    """Variables of an agent that finds its own programs, and nothing of the user's."""
    home.mkdir(exist_ok=True)
    path = os.pathsep.join((*map(str, directories), os.environ["PATH"]))
    return {
        "PATH": path,
        "HOME": str(home),
        **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
    }
