"""Agents that misbehave, each in its own way, once they are prompted. Run as `rogues.py NAME`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SESSION = "rogue"


def line_of(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def send(**message: Any) -> None:
    write(line_of(**message))


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    return dict(json.loads(line))


def update(**fields: Any) -> None:
    send(method="session/update", params={"sessionId": SESSION, "update": fields})


def chunk(text: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def end(prompt: dict[str, Any], reason: str = "end_turn") -> None:
    send(id=prompt["id"], result={"stopReason": reason})


def noise(prompt: dict[str, Any]) -> None:
    """Lines that are no messages, before, between and after those that are."""
    write(b'42\nnull\n[1]\n"text"\ntrue\n{not json\n\n \r\n\xff\xfe\x00binary\x80\n')
    chunk("one")
    write(b"[" * 100_000 + b"\n")
    write(b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"rogue","update":')
    write(b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"two"},"x":NaN}}}\r\n')
    end(prompt)


def exits(prompt: dict[str, Any]) -> None:
    """In the middle of a line."""
    chunk("last words")
    write(b'{"jsonrpc":"2.0","id":3,"resu')
    os._exit(3)


def closes(prompt: dict[str, Any]) -> None:
    """Its output ends, the process lives on."""
    chunk("before the end")
    os.close(1)
    sys.stdin.buffer.read()


def answers_without_line_end(prompt: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}}).encode())
    os._exit(0)


def unknown(prompt: dict[str, Any]) -> None:
    """Updates, notifications and requests that no schema knows, and known ones in a bad form."""
    update(sessionUpdate="telepathy", thoughts=["a", {"b": "\u00fc"}])
    update(sessionUpdate="agent_message_chunk", content="not a block")
    send(method="session/update", params={"sessionId": SESSION})
    send(method="session/update", params=[1, 2])
    send(method="_company/news", params={})
    send(id=99, result={"of": "a question never asked"})
    send(id={"not": "hashable"}, result={})
    answers = []
    for method in ("fs/read_text_file", "terminal/create", "_company/question"):
        send(id=f"q-{method}", method=method, params={"sessionId": SESSION, "path": "/etc/passwd"})
        answers.append(receive())
    send(id="bad", method="session/request_permission", params={"sessionId": SESSION})
    answers.append(receive())
    chunk(json.dumps([[answer["id"], answer["error"]["code"]] for answer in answers]))
    end(prompt)


def late(prompt: dict[str, Any]) -> None:
    """Goes on after the end, and answers twice."""
    chunk("in time")
    end(prompt)
    chunk("late")
    end(prompt, "refusal")
    ask("late question")
    chunk(json.dumps(receive()["result"]))


def answers_within_updates(request: dict[str, Any]) -> None:
    """An update, the answer and an update in a single write, to whatever is asked."""
    content = {"type": "text", "text": "x"}
    params = {"sessionId": SESSION, "update": {"sessionUpdate": "agent_message_chunk", "content": content}}
    piece = line_of(method="session/update", params=params)
    while True:
        write(piece + line_of(id=request["id"], result={"stopReason": "end_turn"}) + piece)
        request = receive()


def ask(title: str) -> None:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    call = {"toolCallId": title, "title": title}
    params = {"sessionId": SESSION, "toolCall": call, "options": options}
    send(id=f"ask {title}", method="session/request_permission", params=params)


def asks_on(prompt: dict[str, Any]) -> None:
    """Asks again after it was cancelled, and tells the answers."""
    ask("first")
    said = [receive(), receive()]
    ask("second")
    said.append(receive())
    chunk(json.dumps([message.get("method") or message["result"] for message in said]))
    end(prompt, "cancelled")


def floods_with_questions(prompt: dict[str, Any]) -> None:
    for number in range(1000):
        ask(str(number))
    sys.stdin.buffer.read()


def silent(prompt: dict[str, Any]) -> None:
    """Never answers, and does not read either."""
    chunk("silent from here on")
    os.read(int(sys.argv[2]) if len(sys.argv) > 2 else os.pipe()[0], 1)


def long_lines(prompt: dict[str, Any]) -> None:
    """Of as many MiB as the arguments say."""
    for size in sys.argv[2:]:
        chunk("x" * (int(size) * 1024 * 1024))
    end(prompt)


def flood(prompt: dict[str, Any]) -> None:
    for number in range(int(sys.argv[2])):
        chunk(f"{number} ")
    end(prompt)


def torrent(prompt: dict[str, Any]) -> None:
    """So many pieces of 100,000 bytes, each counted in a file before it is sent."""
    with Path(sys.argv[3]).open("a", encoding="utf-8") as log:
        for number in range(int(sys.argv[2])):
            print(number, file=log, flush=True)
            chunk(f"{number:06} " + "x" * 99_993)
    end(prompt)


def surrogates(prompt: dict[str, Any]) -> None:
    write(
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"rogue","update":'
        b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text",'
        b'"text":"lone \\ud83d and \\uDE00, pair \\ud83d\\ude00"},"\\udfff":[{"\\ud800":1}]}}}\n'
    )
    end(prompt)


def strange_ends(prompt: dict[str, Any]) -> None:
    """A new stop reason, then none at all, an error that is a string, and an error without fields."""
    end(prompt, "out_of_coffee")
    send(id=receive()["id"], result=None)
    send(id=receive()["id"], error="just no")
    send(id=receive()["id"], error={"code": -32000, "message": "log in first"})


def on_initialize(request: dict[str, Any]) -> dict[str, Any]:
    version = 2 if sys.argv[1] == "newer" else 1
    methods = [{"id": "browser", "name": "In a browser", "description": "opens a page"}]
    return {"protocolVersion": version, "authMethods": methods if sys.argv[1] == "wants_login" else []}


def main() -> None:
    if sys.argv[1] == "exits_at_once":
        os._exit(7)
    opening = receive()
    send(id=opening["id"], result=on_initialize(opening))
    opening = receive()
    if sys.argv[1] == "wants_login":
        send(id=opening["id"], error={"code": -32000, "message": "Authentication required"})
        sys.stdin.buffer.read()
    if opening["method"] == "session/load":
        answers_within_updates(opening)
    if sys.argv[1] == "malformed_session":
        send(id=opening["id"], result={"sessionId": 5})
        sys.stdin.buffer.read()
    send(id=opening["id"], result={"sessionId": SESSION})
    behaviour: Callable[[dict[str, Any]], None] = globals()[sys.argv[1]]
    behaviour(receive())
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
