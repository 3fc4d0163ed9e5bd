"""Whether a symbolic link leads out of the tree that it is in, whatever other links it goes through."""

from __future__ import annotations

import os
import stat
from collections import deque
from typing import Final

from services.workspace.sources.fetch.bounds import Rejected

_MOST_HOPS: Final = 40


def check_link(root: str, parts: tuple[str, ...]) -> None:
    """Follow a link of the tree at `root`, as the kernel would; Rejected when that leaves the tree.

    What it leads to need not exist. Nobody else may be changing the tree.
    """
    name = "/".join(parts)
    here = list(parts[:-1])
    ahead = deque(parts[-1:])
    hops = 0
    while ahead:
        part = ahead.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            if not here:
                raise Rejected(f"the link {name!r} leads out of it")
            here.pop()
            continue
        target = _target("/".join((root, *here, part)))
        if target is None:
            here.append(part)
            continue
        hops += 1
        if target.startswith("/"):
            raise Rejected(f"the link {name!r} leads out of it")
        if hops > _MOST_HOPS:
            raise Rejected(f"the link {name!r} goes through more than {_MOST_HOPS} links, or in a circle")
        ahead.extendleft(reversed(target.split("/")))


def _target(path: str) -> str | None:
    """What it links to, None when it is no link. Every doubt is an error."""
    try:
        is_link = stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Path.readlink would tidy up what has to be followed as it is.
    return os.readlink(path) if is_link else None  # noqa: PTH115
