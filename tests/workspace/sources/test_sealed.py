"""What fetches has no way to an engine's socket, nor to anybody who has (W10)."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys

import pytest

from services.workspace.sources.fetch import syscalls
from tests.workspace.instances import Machine, running
from tests.workspace.sources.servers import Repository, Site
from tests.workspace.sources.wishes import of_git, refused

# Stands where git is expected, and says what it can do.
PROBE = """\
#!{python}
import errno, os, socket, sys
def attempt(name, do):
    try:
        do()
        sys.stderr.write(f"{{name}}=done ")
    except OSError as error:
        sys.stderr.write(f"{{name}}={{errno.errorcode[error.errno]}} ")
def connect():
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect({address!r})
attempt("connect", connect)
attempt("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("memory", lambda: open("/proc/{instance}/mem", "r+b"))
attempt("outside", lambda: open({outside!r}, "w"))
attempt("inside", lambda: open(os.environ["HOME"] + "/x", "w"))
attempt("internet", lambda: socket.socket(socket.AF_INET))
links = [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if os.path.lexists(each.path)]
sys.stderr.write(f"sockets={{sum(link.startswith('socket:') for link in links)}}")
sys.exit(1)
"""


async def test_it_reaches_nobody_on_its_machine(
    machine: Machine, site: Site, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a program that a fault of git's would run in git's place."""
    engine = machine.directory / "engine"
    programs = machine.directory / "programs"
    programs.mkdir()
    outside = machine.root / "outside"
    probe = PROBE.format(
        python=sys.executable, address=str(engine), instance=os.getpid(), outside=str(outside)
    )
    (programs / "git").write_text(probe)
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(engine))
        listening.listen()
        async with running(machine, source_hosts=(site.host,)) as (client, _):
            reason = await refused(client, **of_git(site.url("/git/code/.git")))
    told = dict(each.split("=") for each in reason.partition("git version: ")[2].split())
    assert told == {
        "connect": "EPERM",
        "datagrams": "EPERM",
        "netlink": "EPERM",
        "memory": "EACCES",
        "outside": "EACCES",
        "inside": "done",
        "internet": "done",
        "sockets": "0",
    }
    assert not outside.exists()


ALLOWED, KILLED = 0x7FFF0000, 0x80000000
DENIED, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
UNIX, INET, INET6, NETLINK, VSOCK = 1, 2, 10, 16, 40
STREAM, DATAGRAM, CLOSE_ON_EXEC = 1, 2, 0o2000000
NEW_USER = 0x10000000


@pytest.mark.parametrize(
    ("x86_64", "aarch64", "arguments", "verdict"),
    [
        (0, 63, (), ALLOWED),
        (59, 221, (), ALLOWED),
        (41, 198, (INET, STREAM), ALLOWED),
        (41, 198, (INET6, DATAGRAM), ALLOWED),
        (41, 198, (UNIX, STREAM), DENIED),
        (41, 198, (NETLINK, 3), DENIED),
        (41, 198, (VSOCK, STREAM), DENIED),
        (53, 199, (UNIX, STREAM | CLOSE_ON_EXEC), ALLOWED),
        (53, 199, (UNIX, DATAGRAM), DENIED),
        (53, 199, (INET, STREAM), DENIED),
        (425, 425, (), DENIED),
        (101, 117, (), DENIED),
        (311, 271, (), DENIED),
        (438, 438, (), DENIED),
        (272, 97, (), DENIED),
        (56, 220, (0x11,), ALLOWED),
        (56, 220, (NEW_USER | 0x11,), DENIED),
        (435, 435, (), UNKNOWN),
    ],
)
def test_what_may_be_asked_of_a_kernel(
    x86_64: int, aarch64: int, arguments: tuple[int, ...], verdict: int
) -> None:
    assert judge("x86_64", 0xC000003E, x86_64, *arguments) == verdict
    assert judge("aarch64", 0xC00000B7, aarch64, *arguments) == verdict


def test_another_interface_of_the_kernel_is_the_end() -> None:
    assert judge("x86_64", 0x40000003, 359, UNIX) == KILLED, "i386, where 359 makes a socket"
    assert judge("x86_64", 0xC000003E, 0x40000000 + 41, UNIX) == KILLED, "x32"
    assert judge("aarch64", 0x40000028, 281, UNIX) == KILLED, "arm"


def judge(machine: str, interface: int, number: int, *arguments: int) -> int:
    """What the kernel would answer: it does what the program says, with a call laid out like this."""
    call = struct.pack("=iIQ6Q", number, interface, 0, *(*arguments, *([0] * 6))[:6])
    steps = list(struct.iter_unpack("=HBBI", syscalls.program(machine)))
    at, held = 0, 0
    while True:
        code, if_so, if_not, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", call, value)
            case 0x54:
                held &= value
            case 0x06:
                return int(value)
            case _:
                holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
                at += if_so if holds else if_not
