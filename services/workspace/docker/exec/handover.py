"""The socket of an engine's exec on its way from a thread to the event loop, never lost in between."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import docker


class Handover:
    """One exec."""

    def __init__(self) -> None:
        """Nobody has given up."""
        self._lock = threading.Lock()
        self._abandoned = False
        self._socket: socket.socket | None = None

    def open(self, container_id: str, command: Sequence[str], client: docker.DockerClient) -> socket.socket:
        """Start the command with a connection to its streams.

        Blocks, but waits for nothing in the container; errors of the library come through.
        """
        api: Any = client.api
        # Its command starts elsewhere; what is mounted may be nothing that can be entered.
        made = api.exec_create(container_id, list(command), stdin=True, workdir="/")
        if self._abandoned:
            raise InterruptedError
        # The library's objects close the connection when they are collected, so it is taken from them.
        hijacked = api.exec_start(made["Id"], socket=True, tty=False)
        found = socket.socket(fileno=hijacked._sock.detach())  # noqa: SLF001 (there is no other way to it)
        found.setblocking(False)
        return self._hand_over(found)

    def abandon(self) -> None:
        """Nobody waits any more: what comes, or came, is closed."""
        with self._lock:
            self._abandoned = True
            if self._socket is not None:
                self._socket.close()

    def _hand_over(self, found: socket.socket) -> socket.socket:
        with self._lock:
            self._socket = found
            if self._abandoned:
                found.close()
                raise InterruptedError
        return found
