"""The methods of the protocol, on the thread that reads; each prompt has a thread of its own."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from .commands import carry_out
from .session import Session
from .turn import Cancelled, Turn
from .wire import Message, RpcError, Wire

PROTOCOL_VERSION = 1
CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
}


class Agent:
    """Serves one client; sessions live as long as the process, and longer on disk."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sessions: dict[str, Session] = {}
        self._turns: dict[str, Turn] = {}
        self._methods: dict[str, Callable[[Message], Message]] = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/load": self._load_session,
        }

    def handle(self, message: Message) -> None:
        method, params = message["method"], message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "session/cancel":
            self._cancel(params)
        elif "id" in message:
            self._answer(message["id"], method, params)

    def _answer(self, request_id: object, method: object, params: Message) -> None:
        try:
            if method == "session/prompt":
                self._start_prompt(request_id, params)
            elif known := self._methods.get(str(method)):
                self._wire.send({"id": request_id, "result": known(params)})
            else:
                raise RpcError(-32601, f"unknown method: {method}")
        except RpcError as error:
            self._wire.refuse(request_id, error)

    def _initialize(self, params: Message) -> Message:
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": CAPABILITIES,
            "agentInfo": {"name": "moorage-demo", "title": "Moorage demo agent", "version": "1"},
            "authMethods": [],
        }

    def _new_session(self, params: Message) -> Message:
        session = Session(f"demo-{os.urandom(8).hex()}", directory_of(params))
        self._sessions[session.id] = session
        return {"sessionId": session.id}

    def _load_session(self, params: Message) -> Message:
        session = self._find_or_read(str(params.get("sessionId")), directory_of(params))
        for update in session.updates:
            replayed = {"sessionId": session.id, "update": update}
            self._wire.send({"method": "session/update", "params": replayed})
        return {}

    def _find_or_read(self, session_id: str, directory: str) -> Session:
        if session := self._sessions.get(session_id):
            return session
        session = Session(session_id, directory)
        # The id becomes part of a path.
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", session_id) or not session.load():
            raise RpcError(-32002, f"no such session: {session_id}")
        self._sessions[session_id] = session
        return session

    def _cancel(self, params: Message) -> None:
        if turn := self._turns.get(str(params.get("sessionId"))):
            turn.cancel()

    def _start_prompt(self, request_id: object, params: Message) -> None:
        session = self._sessions.get(str(params.get("sessionId")))
        if not session:
            raise RpcError(-32002, f"no such session: {params.get('sessionId')}")
        if session.id in self._turns:
            raise RpcError(-32600, "the session already runs a prompt")
        text = text_of(params.get("prompt"))
        if re.search(r"^\s*hang hard\s*$", text, re.IGNORECASE | re.MULTILINE):
            # Only the main thread can do this, and the command runs on another.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        meta = params.get("_meta")
        turn = Turn(self._wire, session, meta if isinstance(meta, dict) else {})
        self._turns[session.id] = turn
        threading.Thread(target=self._prompt, args=(request_id, turn, text), daemon=True).start()

    def _prompt(self, request_id: object, turn: Turn, text: str) -> None:
        said = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}
        turn.session.add_update(said)
        answer: Message = {"id": request_id}
        try:
            answer["result"] = run_prompt(turn, text)
        except Exception as error:  # noqa: BLE001 - whatever it was, the client waits for an answer
            code = error.code if isinstance(error, RpcError) else -32603
            answer["error"] = {"code": code, "message": str(error) or repr(error)}
        del self._turns[turn.session.id]
        self._wire.send(answer)


def run_prompt(turn: Turn, text: str) -> Message:
    reason = "end_turn"
    try:
        carry_out(turn, text)
    except Cancelled:
        reason = "cancelled"
    # Its tokens are words.
    read, written = len(text.split()), turn.words
    usage = {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
    return {"stopReason": reason, "usage": usage}


def directory_of(params: Message) -> str:
    directory = params.get("cwd")
    if not isinstance(directory, str) or not Path(directory).is_absolute():
        raise RpcError(-32602, "cwd: an absolute path is needed")
    if not Path(directory).is_dir():
        raise RpcError(-32602, f"cwd: no such directory: {directory}")
    return directory


def text_of(prompt: object) -> str:
    """The text blocks, a line break after each; other blocks are named by their URI."""
    if not isinstance(prompt, list) or not all(isinstance(block, dict) for block in prompt):
        raise RpcError(-32602, "prompt: a list of content blocks is needed")
    return "\n".join(str(block.get("text") or uri_of(block)) for block in prompt)


def uri_of(block: Message) -> str:
    resource = block.get("resource")
    inner = resource if isinstance(resource, dict) else block
    return f"({block.get('type')} {inner.get('uri')})"


def main() -> None:
    wire = Wire()
    agent = Agent(wire)
    for message in wire.requests():
        agent.handle(message)
    while wire.hangs:
        threading.Event().wait()
    # Threads of prompts and the tools of their turns end with the process.
    os._exit(0)
