"""What becomes of accesses to files while links are swapped in: they work, or are refused, and never lead outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from services.common.errors import MoorageError
from tests.workspace.filing import Files

INSIDE = b"inside"
OUTSIDE = b"outside"
CALLS = 200


@dataclass(frozen=True)
class Outcomes:
    """Counts what happens, by reason; `expected` beside "done" and PATH_OUTSIDE_ROOT."""

    expected: Collection[str]
    counted: Counter[str] = field(default_factory=Counter)

    async def call(self, access: Awaitable[object], *found: object) -> None:
        """An access that gives the file inside, how much of it was written, or what else may be `found`."""
        try:
            seen = await access
        except MoorageError as error:
            self.counted[error.reason_name] += 1
        else:
            assert seen in (INSIDE, len(INSIDE), *found), seen
            self.counted["done"] += 1

    async def call_often(self, files: Files, *found: object) -> None:
        """Read and write a file, and one in a directory, side by side."""
        for _ in range(CALLS):
            await asyncio.gather(
                self.call(files.read("d/f"), *found),
                self.call(files.read("f"), *found),
                self.call(files.write("d/f", INSIDE), *found),
                self.call(files.write("f", INSIDE), *found),
            )

    def check(self) -> None:
        """Both happened, and nothing that is not expected."""
        assert self.counted["done"] > 10, self.counted
        assert self.counted["PATH_OUTSIDE_ROOT"] > 10, self.counted
        assert not self.counted.keys() - {"done", "PATH_OUTSIDE_ROOT", *self.expected}, self.counted


def check_untouched(outside: Path, *names: str) -> None:
    """Everything outside is as it was."""
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == dict.fromkeys(names, OUTSIDE)
