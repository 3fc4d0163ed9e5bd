"""The program `moorage`, imported once: a process forks for each command that is run to its end.

Most of a short command's time is Python's start and imports. What runs in the fork is the
program's own `main`, with arguments, directory, environment and outputs of its own. Commands that
go on, on terminals for instance, are started as people start them.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

_LARGEST_ORDER = 1 << 17


class Preloaded:
    """A process that has imported the program; it ends with the one that made it."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._free = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                # Of the tests it needs nothing, so their directory is not put before the libraries'.
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(
        self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """What a command printed and how it ended; None while it runs another one, or for one that is too long."""
        order = json.dumps([list(arguments), str(directory), dict(environment)]).encode()
        if len(order) > _LARGEST_ORDER or not self._free.acquire(blocking=False):
            return None
        try:
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                socket.send_fds(self._connection, [order], [output.fileno(), errors.fileno()])
                code = self._ended(timeout)
                return subprocess.CompletedProcess(arguments, code, _read(output), _read(errors))
        finally:
            self._free.release()

    def _ended(self, timeout: float) -> int:
        pid = int(self._answer(timeout))
        try:
            return int(self._answer(timeout))
        except TimeoutError:
            os.kill(pid, 9)
            self._answer(timeout)
            raise

    def _answer(self, timeout: float) -> bytes:
        self._connection.settimeout(timeout)
        answer = self._connection.recv(64)
        assert answer, f"the preloaded program ended with {self._process.wait()}"
        return answer


@cache
def preloaded() -> Preloaded:
    """The one of this process."""
    return Preloaded()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _serve(connection: socket.socket) -> None:
    from services.cli.__main__ import main

    # What is there already is never collected, and so never copied.
    gc.freeze()
    while True:
        order, descriptors, _, _ = socket.recv_fds(connection, _LARGEST_ORDER, 2)
        if not order:
            return
        pid = os.fork()
        if not pid:
            connection.close()
            arguments, directory, environment = json.loads(order)
            _run(main, arguments, directory, environment, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(
    main: Callable[[], object],
    arguments: list[str],
    directory: str,
    environment: dict[str, str],
    outputs: list[int],
) -> NoReturn:
    code: object = 1
    try:
        for standard, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.argv = ["moorage", *arguments]
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except Exception:  # noqa: BLE001 (as an interpreter ends with it)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
