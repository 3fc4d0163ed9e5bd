"""What a sealed process may ask of the kernel, as a program that the kernel judges each call with.

The numbers are those of the kernel's interface, which never change, for the machines that we know.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import Final

# By machine, as uname has it: what the kernel calls it, and its column below.
MACHINES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# From here on, x86_64 has the calls of another interface under the same name.
_X32: Final = 0x40000000

_CLONE: Final = (56, 220)
_CLONE3: Final = 435
_SOCKET: Final = (41, 198)
_SOCKET_PAIR: Final = (53, 199)
_DENIED: Final = (
    # Calls that go past this filter: io_uring.
    *((number, number) for number in (425, 426, 427)),
    # Other processes: ptrace, process_vm_readv, process_vm_writev, pidfd_getfd.
    *((101, 117), (310, 270), (311, 271), (438, 438)),
    # Other namespaces and what is mounted: unshare, setns, mount, umount2, pivot_root, chroot.
    *((272, 97), (308, 268), (165, 40), (166, 39), (155, 41), (161, 51)),
    # The same: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr.
    *((number, number) for number in (428, 429, 430, 431, 432, 433, 442)),
    # The kernel itself: bpf, perf_event_open, userfaultfd, add_key, request_key, keyctl.
    *((321, 280), (298, 241), (323, 282), (248, 217), (249, 218), (250, 219)),
    # Modules and other kernels: init_module, finit_module, kexec_load, kexec_file_load, open_by_handle_at.
    *((175, 105), (313, 273), (246, 104), (320, 294), (304, 265)),
)

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_FAIL: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000
# Where a call's number, its interface and the lower halves of its first arguments are, little-endian.
_NUMBER, _INTERFACE, _FIRST, _SECOND = 0, 4, 16, 24
_KIND_OF_SOCKET: Final = 0xF
_NEW_USER_NAMESPACE: Final = 0x10000000

_FORM: Final = "=HBBI"
STEP: Final = struct.calcsize(_FORM)

_Step = tuple[int, int, int, int]


def program(machine: str) -> bytes:
    """The instructions, one after another, each as the kernel's `sock_filter`. KeyError for machines unknown."""
    interface, column = MACHINES[machine]
    steps = [_step(_LOAD, _INTERFACE), *_unless(_EQUAL, interface, _KILL_PROCESS), _step(_LOAD, _NUMBER)]
    if machine == "x86_64":
        steps += _when(_AT_LEAST, _X32, [_step(_RETURN, _KILL_PROCESS)])
    for numbers in _DENIED:
        steps += _when(_EQUAL, numbers[column], [_failing(errno.EPERM)])
    # Its flags lie in memory, where they are not to be seen; libraries go on with the older call.
    steps += _when(_EQUAL, _CLONE3, [_failing(errno.ENOSYS)])
    steps += _when(_EQUAL, _CLONE[column], _clone())
    steps += _when(_EQUAL, _SOCKET[column], _sockets())
    steps += _when(_EQUAL, _SOCKET_PAIR[column], _pairs())
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(struct.pack(_FORM, *each) for each in steps)


def _clone() -> list[_Step]:
    """In a user namespace of its own a process has all rights."""
    denied = _when(_ANY_BIT, _NEW_USER_NAMESPACE, [_failing(errno.EPERM)])
    return [_step(_LOAD, _FIRST), *denied, _step(_RETURN, _ALLOW)]


def _sockets() -> list[_Step]:
    """What reaches other machines only: an engine, like most of a machine's own services, has a file as address."""
    allowed = [_step(_RETURN, _ALLOW)]
    families = (socket.AF_INET, socket.AF_INET6)
    judged = [step for family in families for step in _when(_EQUAL, family, allowed)]
    return [_step(_LOAD, _FIRST), *judged, _failing(errno.EPERM)]


def _pairs() -> list[_Step]:
    """Streams, as curl makes: they are connected, and stay so. Datagrams could be sent to others."""
    judged = _unless(_EQUAL, socket.AF_UNIX, _FAIL | errno.EPERM)
    kind = [_step(_LOAD, _SECOND), _step(_AND, _KIND_OF_SOCKET)]
    streams = _unless(_EQUAL, socket.SOCK_STREAM, _FAIL | errno.EPERM)
    return [_step(_LOAD, _FIRST), *judged, *kind, *streams, _step(_RETURN, _ALLOW)]


def _step(code: int, value: int) -> _Step:
    return (code, 0, 0, value)


def _failing(number: int) -> _Step:
    return _step(_RETURN, _FAIL | number)


def _when(test: int, value: int, then: list[_Step]) -> list[_Step]:
    """`then` must return, as what was loaded may be another afterwards."""
    return [(test, 0, len(then), value), *then]


def _unless(test: int, value: int, verdict: int) -> list[_Step]:
    return [(test, 1, 0, value), _step(_RETURN, verdict)]
