"""How the demo sees what its agent did: in the directory itself where that is on this machine, else by asking it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moorage.common.v1 import record_pb2

Ask = Callable[[str], Awaitable[list[record_pb2.Record]]]


class Sight(Protocol):
    """A look into a session's workspace."""

    async def read(self, name: str) -> str | None:
        """A file's text; None when there is no such file."""


@dataclass(frozen=True, slots=True)
class OnThisMachine:
    """The directory itself."""

    directory: Path

    async def read(self, name: str) -> str | None:
        """As it is now."""
        path = self.directory / name
        return path.read_text(encoding="utf-8") if path.exists() else None


@dataclass(frozen=True, slots=True)
class ThroughTheAgent:
    """Turns of the session whose tool prints files."""

    ask: Ask

    async def read(self, name: str) -> str | None:
        """What `cat` prints, where it succeeds."""
        ended = [record.body.tool_update for record in await self.ask(f"run cat {name}")]
        for update in ended:
            if update.status == record_pb2.TOOL_CALL_STATUS_COMPLETED:
                return shown_by(update)
        return None


def shown_by(update: record_pb2.ToolUpdate) -> str:
    """The text of a tool's output."""
    return "".join(content.block.text.text for content in update.content)
