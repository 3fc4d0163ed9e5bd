"""JSON-RPC on stdin and stdout, one message per line."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

Message = dict[str, Any]


class RpcError(Exception):
    """Answers a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Wire:
    """Both directions; any thread may send, one receives."""

    def __init__(self) -> None:
        self.hangs = False
        self._lock = threading.Lock()
        self._asked: dict[object, Callable[[Message], None]] = {}

    def send(self, message: Message) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) + "\n"
        try:
            with self._lock:
                sys.stdout.buffer.write(line.encode())
                sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)

    def refuse(self, request_id: object, error: RpcError) -> None:
        self.send({"id": request_id, "error": {"code": error.code, "message": str(error)}})

    def ask(self, method: str, params: Message, answered: Callable[[Message], None]) -> None:
        """Send a request of our own; the receiving thread calls `answered` with the answer."""
        request_id = os.urandom(8).hex()
        self._asked[request_id] = answered
        self.send({"id": request_id, "method": method, "params": params})

    def requests(self) -> Iterator[Message]:
        """What the client asks or notifies, to the end of stdin."""
        for message in self._messages():
            if "method" in message:
                yield message
            elif answered := self._asked.pop(str(message.get("id")), None):
                answered(message)

    def _messages(self) -> Iterator[Message]:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                self.refuse(None, RpcError(-32700, "parse error"))
                continue
            if isinstance(message, dict):
                yield message
            else:
                self.refuse(None, RpcError(-32600, "a message is a JSON object"))
