"""Becomes a PostgreSQL program: gives up root, asks to be stopped when its parent ends, then executes the program.

Run as a script by postgres_home.py, with the standard library only. It is a process of its own because doing this
between fork and exec of a parent with threads is not safe.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def give_up_root(uid: int, gid: int) -> None:
    """For good: groups first, while that is still allowed."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def end_with(parent: int) -> None:
    """Get SIGINT, PostgreSQL's fast shutdown, when the parent ends, however it ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the process that wanted PostgreSQL is gone")


def main(parent: int, uid: int, gid: int, command: list[str]) -> None:
    """Does not return. The parent's environment may hold secrets and PG* settings: the program gets none of it."""
    give_up_root(uid, gid)
    end_with(parent)  # after the change of user, which clears it
    environment = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    if "ICU_DATA" in os.environ:
        environment["ICU_DATA"] = os.environ["ICU_DATA"]
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
