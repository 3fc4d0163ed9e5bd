"""Rogues that say more than anybody can take at once."""

from __future__ import annotations

import sys
from pathlib import Path

from .wire import Message, chunk, end, update


def flood(prompt: Message) -> None:
    for number in range(int(sys.argv[2])):
        chunk(f"{number} ")
    end(prompt)


def torrent(prompt: Message) -> None:
    """So many pieces of 100,000 bytes, each counted in a file before it is sent."""
    with Path(sys.argv[3]).open("a", encoding="utf-8") as log:
        for number in range(int(sys.argv[2])):
            print(number, file=log, flush=True)
            chunk(f"{number:06} " + "x" * 99_993)
    end(prompt)


def deluge(prompt: Message) -> None:
    """So many updates that cannot be merged, and so many pieces of text, by turns."""
    for number in range(int(sys.argv[2]) // 2):
        chunk(f"{number} " + "x" * 90 + " ")
        update(sessionUpdate="tool_call_update", toolCallId="t", status="in_progress", rawOutput=number)
    end(prompt)
