"""Agents that misbehave, each in its own way, once they are prompted. Run as `rogues.py NAME`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SESSION = "rogue"
initialized: dict[str, Any] = {}


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


def exits_when_cancelled(prompt: dict[str, Any]) -> None:
    chunk("at work")
    receive()
    os._exit(0)


def fails_when_cancelled(prompt: dict[str, Any]) -> None:
    chunk("at work")
    receive()
    send(id=prompt["id"], error={"code": -32603, "message": "aborted"})


def chatters(prompt: dict[str, Any]) -> None:
    """Takes prompts for ever, and goes on talking after each end."""
    while True:
        chunk("in time")
        end(prompt)
        for number in range(50):
            chunk(f"late {number}")
        prompt = receive()


def repeats(prompt: dict[str, Any]) -> None:
    """Says what it was told; takes prompts for ever."""
    while True:
        for block in prompt["params"]["prompt"]:
            chunk(block["text"] + "\n")
        end(prompt)
        prompt = receive()


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
        send(id=f"q-{method}", method=method, params={"sessionId": SESSION, "path": 7})
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


def asks_two(prompt: dict[str, Any]) -> None:
    """Goes on while two questions are open, and tells the answers by their titles."""
    chunk("before ")
    ask("first")
    chunk("between ")
    ask("second")
    chunk("beside ")
    outcomes: dict[str, Any] = {}
    reason = "end_turn"
    while len(outcomes) < 2:
        message = receive()
        if message.get("method") == "session/cancel":
            reason = "cancelled"
        else:
            outcomes[message["id"]] = message["result"]["outcome"]
    chunk(json.dumps(outcomes))
    end(prompt, reason)


def asks_badly(prompt: dict[str, Any]) -> None:
    """Questions that nobody can answer."""
    same = [{"optionId": "same", "name": name, "kind": "allow_once"} for name in "ab"]
    codes = []
    for options in ([], same, [{"optionId": "", "name": "Empty", "kind": "allow_once"}]):
        params = {"sessionId": SESSION, "toolCall": {"toolCallId": "t"}, "options": options}
        send(id="q", method="session/request_permission", params=params)
        codes.append(receive()["error"]["code"])
    chunk(json.dumps(codes))
    end(prompt)


def asks_too_much(prompt: dict[str, Any]) -> None:
    """A question that is too large to be stored."""
    chunk("before ")
    ask("x" * 300_000)
    chunk(json.dumps(receive()["result"]["outcome"]))
    end(prompt)


def call(method: str, **params: Any) -> Any:
    """The client's answer to a request: a result, or code and message of an error."""
    send(id=method, method=method, params={"sessionId": SESSION, **params})
    answer = receive()
    error = answer.get("error")
    return [error["code"], error["message"]] if error else answer["result"]


def asks_for_a_file(prompt: dict[str, Any]) -> None:
    """Goes on meanwhile, and tells the error."""
    send(id="file", method="fs/read_text_file", params={"sessionId": SESSION, "path": "/file"})
    chunk("beside")
    error = receive()["error"]
    chunk(json.dumps([error["code"], error["message"]]))
    end(prompt)


def tells_capabilities(prompt: dict[str, Any]) -> None:
    """What the client said of itself."""
    chunk(json.dumps(initialized["params"]["clientCapabilities"]))
    end(prompt)


def shell(script: str, **params: Any) -> str:
    """The id of a terminal with a command by arguments."""
    created = call("terminal/create", command="/bin/sh", args=["-c", script], **params)
    return str(created["terminalId"])


def uses_terminals(prompt: dict[str, Any]) -> None:
    """Whatever can be done with terminals; tells what came out, as JSON."""
    told: dict[str, Any] = {}
    short = shell("printf '\\303\\244\\303\\266\\303\\274\\303\\237'; exit 3", outputByteLimit=5)
    told["exit"] = call("terminal/wait_for_exit", terminalId=short)
    told["tail"] = call("terminal/output", terminalId=short)
    told["again"] = call("terminal/wait_for_exit", terminalId=short)
    both = shell("cat; echo out; echo err >&2; echo $GREETING $OWN; pwd", env=[{"name": "OWN", "value": "o"}])
    call("terminal/wait_for_exit", terminalId=both)
    told["both"] = call("terminal/output", terminalId=both)["output"]
    long = shell("echo started; sleep 1000")
    while not call("terminal/output", terminalId=long)["output"]:
        time.sleep(0.02)
    told["running"] = call("terminal/output", terminalId=long)
    send(id="waiting", method="terminal/wait_for_exit", params={"sessionId": SESSION, "terminalId": long})
    chunk("beside ")
    send(id="kill", method="terminal/kill", params={"sessionId": SESSION, "terminalId": long})
    answers = {answer["id"]: answer["result"] for answer in (receive(), receive())}
    told["killed"] = [answers["kill"], answers["waiting"]]
    told["kept"] = call("terminal/output", terminalId=long)["output"]
    told["released"] = call("terminal/release", terminalId=long)
    told["gone"] = call("terminal/output", terminalId=long)
    told["missing"] = call("terminal/create", command="/no/such/program", args=["x"])
    told["long"] = call("terminal/create", command="echo", args=["x" * 100_000] * 11)
    told["outside"] = call("terminal/create", command="true", cwd="/")
    told["relative"] = call("terminal/create", command="true", cwd="sub")
    chunk(json.dumps(told))
    end(prompt)


def opens_many_terminals(prompt: dict[str, Any]) -> None:
    """One more than there may be, each with a process that tells its id in a file, and leaves them behind."""
    answers = [call("terminal/create", command=f"echo $$ > {n}.pid; exec sleep 1000") for n in range(17)]
    chunk(json.dumps(answers[-1]))
    while len([file for file in Path().glob("*.pid") if file.read_text()]) < 16:
        time.sleep(0.02)
    if sys.argv[2:] == ["exit"]:
        os._exit(1)
    end(prompt)


def reads_and_writes(prompt: dict[str, Any]) -> None:
    """Files within limits and beyond, many at once, and answers out of order."""
    here = Path.cwd()
    told: dict[str, Any] = {"relative": call("fs/read_text_file", path="some.txt")}
    told["too large"] = call("fs/write_text_file", path=f"{here}/large.txt", content="\u00e4" * 600_000)
    told["large"] = call("fs/write_text_file", path=f"{here}/large.txt", content="\u00e4" * 500_000)
    for number in range(40):
        params = {"sessionId": SESSION, "path": f"{here}/{number}.txt"}
        send(id=number, method="fs/write_text_file", params={**params, "content": str(number)})
    told["written"] = sum(receive()["result"] == {} for _ in range(40))
    for number in range(40):
        params = {"sessionId": SESSION, "path": f"{here}/{number}.txt"}
        send(id=number, method="fs/read_text_file", params=params)
    answers = [receive() for _ in range(40)]
    told["read"] = sum(answer["result"]["content"] == str(answer["id"]) for answer in answers)
    chunk(json.dumps(told))
    end(prompt)


def on_initialize(request: dict[str, Any]) -> dict[str, Any]:
    version = 2 if sys.argv[1] == "newer" else 1
    methods = [{"id": "browser", "name": "In a browser", "description": "opens a page"}]
    return {"protocolVersion": version, "authMethods": methods if sys.argv[1] == "wants_login" else []}


def main() -> None:
    if sys.argv[1] == "exits_at_once":
        os._exit(7)
    initialized.update(receive())
    send(id=initialized["id"], result=on_initialize(initialized))
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
