"""Swaps what a workspace has for links to a place outside, as fast as it can, until its input ends.

    python swapper.py PARENT WORKSPACE OUTSIDE

`WORKSPACE` (in `PARENT`) itself, its directory `d`, and its file `f` are by turns what they are
and links to `OUTSIDE` and to the file `f` in it. Prints how often it swapped.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path

EXCHANGE = 2


def main(parent: str, workspace: str, outside: str) -> None:
    """All names are relative to descriptors: what is swapped never leads this process astray."""
    above = os.open(parent, os.O_PATH)
    inside = os.open(workspace, os.O_PATH, dir_fd=above)
    os.symlink(outside, f"{workspace}.link", dir_fd=above)
    os.symlink(outside, "d.link", dir_fd=inside)
    ended = threading.Event()
    threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
    swaps = 0
    print("swapping", flush=True)
    while not ended.is_set() or swaps % 2:
        exchange(inside, "d", "d.link")
        replace_file(inside, f"{outside}/f" if swaps % 2 == 0 else "")
        if swaps % 10 == 0:
            exchange(above, workspace, f"{workspace}.link")
            exchange(above, workspace, f"{workspace}.link")
        swaps += 1
    print(swaps, flush=True)


def wait_for_end(ended: threading.Event) -> None:
    """Until the input ends."""
    sys.stdin.read()
    ended.set()


def exchange(directory: int, one: str, other: str) -> None:
    """Give two entries each other's name, at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(directory, one.encode(), directory, other.encode(), EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), one)


def replace_file(directory: int, target: str) -> None:
    """Make `f` a link, or a file when there is no target."""
    if target:
        os.symlink(target, "f.new", dir_fd=directory)
    else:
        with os.fdopen(os.open("f.new", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=directory), "wb") as file:
            file.write(b"inside")
    os.rename("f.new", "f", src_dir_fd=directory, dst_dir_fd=directory)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).name, sys.argv[3])
