"""The instance's side of the fork server: one per instance, made before anything else runs."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from services.workspace.exec import shim
from services.workspace.exec.marker import FORK_SERVER, Marker
from services.workspace.exec.pipes import PipeReader, PipeWriter
from services.workspace.exec.process import StartFailed, Streams
from services.workspace.exec.shimmed import ShimProcess

_SCRIPT: Final = str(Path(shim.__file__).resolve())
_SEND_TIMEOUT: Final = 1.0


class ForkServer:
    """Makes processes without forking this process, which has threads and channels.

    When it is found dead, a new one is started; the execs of the old one are not affected.
    """

    def __init__(self) -> None:
        """Not started yet."""
        self._environment: dict[str, str] = {}
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self, marker: Marker) -> None:
        """Start it; its own environment carries the instance's marker."""
        self._environment = marker.of(FORK_SERVER).environment()
        self._drop()
        self._start()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", "-X", "utf8", _SCRIPT, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(_SEND_TIMEOUT)
        self._control = ours
        return ours

    def spawn(self, directory: int, terminal: tuple[int, int] | None) -> ShimProcess:
        """Make a shim; its process starts nothing before its `start`. StartFailed says why not.

        `directory` is an open descriptor, which stays the caller's; `terminal` is (columns, rows).
        """
        try:
            return self._spawn(directory, terminal)
        except OSError as error:
            raise StartFailed(error.strerror or str(error)) from error

    def _spawn(self, directory: int, terminal: tuple[int, int] | None) -> ShimProcess:
        with ExitStack() as theirs, ExitStack() as ours:
            connection, remote = socket.socketpair()
            ours.callback(connection.close)
            theirs.callback(remote.close)
            make = _make_pipes if terminal is None else _make_terminal
            streams, descriptors, controller = make(theirs, ours)
            if terminal is not None:
                termios.tcsetwinsize(descriptors[0], (terminal[1], terminal[0]))
            self._send([remote.fileno(), directory, *descriptors])
            process = ShimProcess(connection, streams, controller)
            ours.pop_all()
            return process

    def _send(self, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._connected(), [b"x"], descriptors)
        except ConnectionError:
            self._drop()
            socket.send_fds(self._connected(), [b"x"], descriptors)

    def _connected(self) -> socket.socket:
        if self._control is None or self._process is None or self._process.poll() is not None:
            self._drop()
            return self._start()
        return self._control

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def close(self) -> None:
        """End it; what still runs under its shims lives on until those are told."""
        await asyncio.to_thread(self._drop)


def _own(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _make_pipes(theirs: ExitStack, ours: ExitStack) -> tuple[Streams, list[int], int | None]:
    stdin_reader, stdin_writer = os.pipe()
    _own(theirs, stdin_reader), _own(ours, stdin_writer)
    stdout_reader, stdout_writer = os.pipe()
    _own(ours, stdout_reader), _own(theirs, stdout_writer)
    stderr_reader, stderr_writer = os.pipe()
    _own(ours, stderr_reader), _own(theirs, stderr_writer)
    streams = Streams(PipeWriter(stdin_writer), PipeReader(stdout_reader), PipeReader(stderr_reader))
    return streams, [stdin_reader, stdout_writer, stderr_writer], None


def _make_terminal(theirs: ExitStack, ours: ExitStack) -> tuple[Streams, list[int], int | None]:
    controller, device = pty.openpty()
    _own(ours, controller), _own(theirs, device)
    # Reading and writing end apart from each other, so each has its own descriptor.
    writer = _own(ours, os.dup(controller))
    streams = Streams(PipeWriter(writer), PipeReader(controller), None)
    return streams, [device, device, device], controller
