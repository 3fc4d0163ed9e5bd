"""Whether those who are to work in a directory may write there."""

from __future__ import annotations

import os
import stat
from typing import Final

from services.workspace.docker.containers import User

_ROOT: Final = 0
_ACL: Final = "system.posix_acl_access"


def why_not(descriptor: int, user: User, directory: str) -> str:
    """Why processes of `user` cannot make anything in an open directory of root's; empty when they can.

    Lists of access rights are taken to allow it. An owner can always allow it to himself.
    """
    if allows(os.fstat(descriptor), user) or _has_list(descriptor):
        return ""
    return (
        f"{directory} belongs to root, and the processes in a container are user {user.uid}, "
        f"who may not write there; `chown {user.uid}:{user.gid} {directory}` lets them"
    )


def allows(status: os.stat_result, user: User) -> bool:
    """Whether a directory's mode lets `user` write there, or somebody who is not root owns it."""
    if status.st_uid != _ROOT:
        return True
    needed = stat.S_IWGRP | stat.S_IXGRP if status.st_gid == user.gid else stat.S_IWOTH | stat.S_IXOTH
    return status.st_mode & needed == needed


def _has_list(descriptor: int) -> bool:
    try:
        return bool(os.getxattr(descriptor, _ACL))
    except OSError:
        return False
