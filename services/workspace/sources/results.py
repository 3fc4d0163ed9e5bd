"""How a set-up command ended, and the end of what it printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.workspace.texts import storable

MOST_KEPT: Final = 64 * 1024
_LONGEST_WORDS: Final = 300


@dataclass(frozen=True, slots=True)
class Result:
    """How a set-up command ended: exactly one of exit code, signal and timeout (seconds) is there."""

    exit_code: int | None
    signal: str
    timeout: float | None
    out_of_memory: bool
    output: str
    truncated: bool

    @property
    def failure(self) -> str:
        """Why the workspace cannot be used, empty when it can."""
        if self.exit_code == 0:
            return ""
        how = (
            f"lasted longer than {self.timeout:g} s"
            if self.timeout is not None
            else f"was ended by {self.signal}"
            if self.exit_code is None
            else f"ended with {self.exit_code}"
        )
        memory = ", as memory was used up" if self.out_of_memory else ""
        words = " ".join(self.output.split())[-_LONGEST_WORDS:]
        return f"its set-up command {how}{memory}{': ' if words else ''}{words}"


class Tail:
    """The end of what a command prints, in the order in which it comes."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._kept = bytearray()
        self.truncated = False

    def take(self, data: bytes) -> None:
        """Keep it, and of what came before as much as there is room for."""
        self._kept += data
        if len(self._kept) > MOST_KEPT:
            self.truncated = True
            del self._kept[:-MOST_KEPT]

    @property
    def text(self) -> str:
        """As text; what is none, or cannot be stored, is replaced. At most MOST_KEPT bytes."""
        text = storable(self._kept.decode(errors="replace"))
        return text.encode()[-MOST_KEPT:].decode(errors="ignore")
