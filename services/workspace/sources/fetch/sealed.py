"""Seals the process that fetches: what a fault of git or of an unpacker lets others do in it, it does in here.

It runs as the instance's user, who may use an engine's socket, and so be root. A sealed process, and
whatever it starts, makes no socket but those of TCP and UDP, has no way to another process's
descriptors or memory, gains no rights, and has those only that filling a directory takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import Final

from services.workspace.sources.fetch import landlock, syscalls
from services.workspace.sources.fetch.bounds import Rejected

_NO_NEW_PRIVILEGES: Final = 38
_SET_FILTER: Final = (22, 2)
_DROP_FROM_BOUNDS: Final = 24
_VERSION: Final = 0x20080522
_WORDS: Final = 6
_MOST_RIGHTS: Final = 64
# As root: what was there is removed, what is made belongs to the root's owner (CHOWN, DAC_OVERRIDE, FOWNER).
_KEPT: Final = 1 << 0 | 1 << 1 | 1 << 3


def seal(directory: str) -> None:
    """For ever. It writes in this directory only from now on, if the kernel can see to that. Rejected."""
    try:
        _drop_groups()
        _drop_rights()
        _prctl(_NO_NEW_PRIVILEGES, 1)
        landlock.restrict(directory, file=os.devnull)
        _filter(os.uname().machine)
    except KeyError as error:
        raise Rejected(f"nothing is fetched on a machine {error}: it could not be sealed") from error
    except OSError as error:
        raise Rejected(f"nothing is fetched where that cannot be sealed: {error}") from error


def _drop_groups() -> None:
    """Who may not do this stays in them, as one may who is no root: the sockets are closed all the same."""
    with contextlib.suppress(PermissionError):
        os.setgroups([])


def _drop_rights() -> None:
    for right in range(_MOST_RIGHTS):
        if not _KEPT >> right & 1:
            # The kernel knows no more of them, or it is no root.
            with contextlib.suppress(OSError):
                _prctl(_DROP_FROM_BOUNDS, right)
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _VERSION, 0)
    held = ctypes.create_string_buffer(4 * _WORDS)
    _check(libc.capget(header, held), "capget")
    permitted = struct.unpack(f"={_WORDS}I", held.raw)[1] & _KEPT
    _check(libc.capset(header, struct.pack(f"={_WORDS}I", permitted, permitted, 0, 0, 0, 0)), "capset")


def _filter(machine: str) -> None:
    text = syscalls.program(machine)
    steps = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("@HP", len(text) // syscalls.STEP, ctypes.addressof(steps))
    kept = ctypes.create_string_buffer(program, len(program))
    _prctl(*_SET_FILTER, ctypes.addressof(kept))


def _prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(option, *(ctypes.c_ulong(each) for each in padded)), "prctl")


def _check(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
