"""The demo agent, which tells a datagram socket the moment in which it is told to cancel a prompt.

Run as a profile's command: `telling_agent.py SOCKET DEMO_AGENT`. What it tells is seconds on
CLOCK_MONOTONIC, which the processes of one machine share.
"""

from __future__ import annotations

import importlib
import socket
import sys
import time
from pathlib import Path
from typing import Any


def main(address: str, package: str) -> None:
    """Serve standard input until it ends."""
    sys.path[0] = str(Path(package).resolve().parent)
    turns = importlib.import_module("demo.turn")
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    cancel = turns.Turn.cancel

    def tell(turn: Any) -> None:
        told.sendto(repr(time.monotonic()).encode(), address)
        cancel(turn)

    turns.Turn.cancel = tell
    importlib.import_module("demo.agent").main()


if __name__ == "__main__":
    main(*sys.argv[1:])
