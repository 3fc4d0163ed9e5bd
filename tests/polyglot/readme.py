"""The README's own commands: console blocks that follow a comment `check: TOOL NAME`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "127.0.0.1:7801"
_BLOCK = re.compile(r"^<!-- check: grpcurl (\w+) -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> dict[str, list[str]]:
    """The commands of each checked block, as a shell takes them, by the block's name."""
    return {name: _commands_in(block) for name, block in _BLOCK.findall(README.read_text(encoding="utf-8"))}


def at(command: str, address: str) -> str:
    """The command with the test's address instead of the README's."""
    assert command.count(ADDRESS) == 1
    return command.replace(ADDRESS, address)


@dataclass(frozen=True)
class Call:
    """What a command of grpcurl calls; a verb such as `list` instead of a method has no data."""

    method: str
    data: str = ""

    @classmethod
    def of(cls, command: str) -> Call:
        """Read the command."""
        words = shlex.split(command)
        data = words[words.index("-d") + 1] if "-d" in words else ""
        return cls(words[words.index(ADDRESS) + 1], data)


def _commands_in(block: str) -> list[str]:
    assert block.startswith("$ ")
    return [command.strip() for command in re.split(r"^\$ ", block, flags=re.MULTILINE) if command]
