"""What a process may write to, and that it is no debugger of others, by the kernel's Landlock.

Who is in such a domain has no access to the memory, descriptors and variables of whoever is not.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from typing import Final

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION: Final = 1
_BENEATH: Final = 1
# Before this one, nothing could be moved from one directory to another.
_OLDEST: Final = 2
_TRUNCATES: Final = 3
_SCOPED: Final = 6

_WRITE: Final = 1 << 1
# Directories, files, links and pipes: to remove and to make them.
_CHANGE: Final = sum(1 << bit for bit in (4, 5, 7, 8, 10, 12))
# Devices and sockets.
_MAKE_SPECIAL: Final = sum(1 << bit for bit in (6, 9, 11))
_MOVE: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_SOCKETS_AND_SIGNALS: Final = 0b11


def restrict(*trees: str, file: str) -> bool:
    """Write only below these directories, and to this file; False where the kernel knows no such thing. OSError.

    For this process and all it starts, for ever. Nobody below may gain rights (no_new_privs).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))
    if version < _OLDEST:
        return False
    cut = _TRUNCATE if version >= _TRUNCATES else 0
    below = _WRITE | _CHANGE | _MOVE | cut
    scoped = _SOCKETS_AND_SIGNALS if version >= _SCOPED else 0
    rules = struct.pack("=QQQ", below | _MAKE_SPECIAL, 0, scoped)
    # Kernels of earlier versions know a shorter one, and take a longer one if the rest is zero.
    ruleset = _called(libc, _CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    try:
        _allow(libc, ruleset, {**dict.fromkeys(trees, below), file: _WRITE | cut})
        _called(libc, _RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return True


def _allow(libc: ctypes.CDLL, ruleset: int, allowed: Mapping[str, int]) -> None:
    for path, rights in allowed.items():
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", rights, fd)
            _called(libc, _ADD, ctypes.c_int(ruleset), ctypes.c_int(_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(fd)


def _called(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    answer = int(libc.syscall(number, *arguments))
    if answer < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    return answer
