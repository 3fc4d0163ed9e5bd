"""Becomes another program that ends with its parent, however that ends.

`tied` makes the command. It runs this file as a script, with the standard library only, in a
process of its own: doing this between fork and exec of a parent with threads is not safe.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_SEPARATOR = "--"


def tied(
    program: Sequence[str],
    *,
    end: signal.Signals = signal.SIGTERM,
    account: tuple[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs `program` (an absolute path and arguments) for as long as this process lives.

    On Linux it gets the signal `end` when this process ends; and when only the thread that starts it
    ends, so start it from one that lives as long. `account` is a uid and a gid to run as, for root only;
    `environment` replaces the inherited one.
    """
    uid, gid = account or (os.geteuid(), os.getegid())
    variables = [f"{name}={value}" for name, value in (environment or {}).items()]
    order = [str(os.getpid()), end.name, str(uid), str(gid), *variables, _SEPARATOR, *program]
    return [sys.executable, "-I", "-S", __file__, *order]


def _give_up_root(uid: int, gid: int) -> None:
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])  # groups first, while that is still allowed
        os.setgid(gid)
        os.setuid(uid)


def _end_with(parent: int, end: signal.Signals) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, end, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the parent is gone")


def _main(parent: str, end: str, uid: str, gid: str, *rest: str) -> None:
    _give_up_root(int(uid), int(gid))
    _end_with(int(parent), signal.Signals[end])  # after the change of user, which clears it
    separator = rest.index(_SEPARATOR)
    variables, program = rest[:separator], rest[separator + 1 :]
    environment = dict(variable.split("=", 1) for variable in variables) or os.environ
    os.execve(program[0], program, environment)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    _main(*sys.argv[1:])
