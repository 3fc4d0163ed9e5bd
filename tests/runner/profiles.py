"""Profiles of agents that go wrong, in a directory of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ROGUES = Path(__file__).parents[1] / "agents" / "rogues"


def write_profile(directory: Path, name: str, *command: str, **fields: object) -> None:
    """A profile's file; `{python}` is an interpreter."""
    directory.mkdir(exist_ok=True)
    values: Mapping[str, object] = {
        "name": name,
        "description": f"the agent {name} of a test",
        "command": list(command),
        "network": "none",
        **fields,
    }
    lines = (f"{key} = {json.dumps(value)}" for key, value in values.items())
    (directory / f"{name}.toml").write_text("\n".join(lines), encoding="utf-8")


def write_rogue(directory: Path, behaviour: str, *arguments: str) -> str:
    """The profile of an agent of tests/agents/rogues; gives its name."""
    name = behaviour.replace("_", "-")
    write_profile(directory, name, "{python}", "-I", "-S", str(ROGUES), behaviour, *arguments)
    return name


def write_shell(directory: Path, name: str, script: str) -> str:
    """The profile of a shell script; gives its name."""
    write_profile(directory, name, "/bin/sh", "-c", script)
    return name
