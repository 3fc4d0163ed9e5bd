"""One prompt on its way: what it may do to the session and the client."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NoReturn

from .session import Session
from .tool import Tool
from .wire import Message, RpcError, Wire

PERMISSION_OPTIONS = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Cancelled(Exception):
    """The client cancelled the prompt."""


class Turn:
    """Its methods raise Cancelled as soon as the client has cancelled."""

    def __init__(self, wire: Wire, session: Session, meta: Message) -> None:
        self.session = session
        self.meta = meta
        self.words = 0
        self._wire = wire
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._tool: Tool | None = None
        self._answers: SimpleQueue[Message] = SimpleQueue()

    def cancel(self) -> None:
        self._cancelled.set()
        self._answers.put({})
        with self._lock:
            if self._tool:
                self._tool.kill()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise Cancelled

    def hang(self) -> NoReturn:
        """Never come back, and let the process outlive its input."""
        self._wire.hangs = True
        while True:
            threading.Event().wait()

    def update(self, session_update: str, /, **fields: object) -> None:
        update = {"sessionUpdate": session_update, **fields}
        self.session.add_update(update)
        params = {"sessionId": self.session.id, "update": update}
        self._wire.send({"method": "session/update", "params": params})

    def stream(self, *pieces: str, kind: str = "agent_message_chunk") -> None:
        """Send the pieces as one message, a chunk each."""
        message_id = os.urandom(8).hex()
        for piece in pieces:
            self.chunk(piece, message_id, kind)

    def chunk(self, text: str, message_id: str, kind: str = "agent_message_chunk") -> None:
        self.check()
        self.words += len(text.split())
        self.update(kind, content={"type": "text", "text": text}, messageId=message_id)

    def plan(self, *statuses: str) -> None:
        steps = zip(("Read the words", "Repeat them"), statuses, strict=True)
        entries = [{"content": step, "priority": "medium", "status": s} for step, s in steps]
        self.update("plan", entries=entries)

    @contextmanager
    def tool_call(self, command: str) -> Iterator[Message]:
        """Announce a tool call as pending; yield what names it. A cancel inside ends it."""
        given = {"command": command, "cwd": self.session.directory}
        call = {"toolCallId": f"call-{os.urandom(8).hex()}", "title": command, "kind": "execute"}
        self.update("tool_call", **call, status="pending", rawInput=given)
        try:
            yield call
        except Cancelled:
            self.end_tool(call, "failed", "(cancelled)")
            raise

    def end_tool(self, call: Message, status: str, output: str, **fields: object) -> None:
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        self.progress(call, status=status, content=content, **fields)

    def run_tool(self, call: Message) -> int:
        """Run the announced command to its end; return exit code or negative signal."""
        self.progress(call, status="in_progress")
        code, output = self._execute(call["title"])
        self.check()
        status = "failed" if code else "completed"
        self.end_tool(call, status, output, rawOutput={"exitCode": code})
        return code

    def permitted(self, call: Message) -> bool:
        """Ask the client whether the announced command may run; a client that cannot say has not allowed it."""
        if self.session.always_allowed:
            return True
        asked = {**call, "status": "pending"}
        try:
            result = self.ask("session/request_permission", toolCall=asked, options=PERMISSION_OPTIONS)
        except RpcError:
            return False
        outcome = result.get("outcome") or {}
        if outcome.get("outcome") == "cancelled":
            raise Cancelled
        choice = outcome.get("optionId")
        self.session.always_allowed = choice == "always"
        return choice in ("once", "always")

    def ask(self, method: str, /, **params: object) -> Message:
        """Ask the client and wait for its result; RpcError when it refuses."""
        self._answers = answers = SimpleQueue[Message]()
        self.check()
        self._wire.ask(method, {"sessionId": self.session.id, **params}, answers.put)
        answer = answers.get()
        self.check()
        if error := answer.get("error"):
            raise RpcError(error.get("code", -32603), str(error.get("message")))
        return answer.get("result") or {}

    def tell(self, method: str, /, **params: object) -> None:
        """Ask the client for something that is done without waiting for it."""
        self._wire.ask(method, {"sessionId": self.session.id, **params}, lambda _: None)

    def progress(self, call: Message, **fields: object) -> None:
        self.update("tool_call_update", toolCallId=call["toolCallId"], **fields)

    def _execute(self, command: str) -> tuple[int, str]:
        with self._lock:
            self.check()
            self._tool = Tool(command, self.session.directory)
        code, output = self._tool.wait()
        with self._lock:
            self._tool = None
        return code, output
