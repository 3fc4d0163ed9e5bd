"""The protocol as rogues speak it: JSON-RPC on stdin and stdout, one message after the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
# Does what it is known for, with the first prompt.
Habit = Callable[[Message], None]

SESSION = "rogue"


def line_of(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def send(**message: Any) -> None:
    write(line_of(**message))


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def receive() -> Message:
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    return dict(json.loads(line))


def update(**fields: Any) -> None:
    send(method="session/update", params={"sessionId": SESSION, "update": fields})


def chunk(text: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def end(prompt: Message, reason: str = "end_turn") -> None:
    send(id=prompt["id"], result={"stopReason": reason})


def ask(title: str) -> None:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    call = {"toolCallId": title, "title": title}
    params = {"sessionId": SESSION, "toolCall": call, "options": options}
    send(id=f"ask {title}", method="session/request_permission", params=params)


def call(method: str, **params: Any) -> Any:
    """The client's answer to a request: a result, or code and message of an error."""
    send(id=method, method=method, params={"sessionId": SESSION, **params})
    answer = receive()
    error = answer.get("error")
    return [error["code"], error["message"]] if error else answer["result"]
