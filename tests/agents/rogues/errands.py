"""Agents that have their client do more than it may, at once, or out of order."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from .wire import SESSION, Message, call, chunk, end, receive, send


def asks_for_a_file(prompt: Message) -> None:
    """Goes on meanwhile, and tells the error."""
    send(id="file", method="fs/read_text_file", params={"sessionId": SESSION, "path": "/file"})
    chunk("beside")
    error = receive()["error"]
    chunk(json.dumps([error["code"], error["message"]]))
    end(prompt)


def shell(script: str, **params: Any) -> str:
    """The id of a terminal with a command by arguments."""
    created = call("terminal/create", command="/bin/sh", args=["-c", script], **params)
    return str(created["terminalId"])


def uses_terminals(prompt: Message) -> None:
    """Whatever can be done with terminals; tells what came out, as JSON."""
    told: Message = {}
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


def opens_many_terminals(prompt: Message) -> None:
    """One more than there may be, each with a process that tells its id in a file, and leaves them behind."""
    answers = [call("terminal/create", command=f"echo $$ > {n}.pid; exec sleep 1000") for n in range(17)]
    chunk(json.dumps(answers[-1]))
    while len([file for file in Path().glob("*.pid") if file.read_text()]) < 16:
        time.sleep(0.02)
    if sys.argv[2:] == ["exit"]:
        os._exit(1)
    end(prompt)


def reads_and_writes(prompt: Message) -> None:
    """Files within limits and beyond, many at once, and answers out of order."""
    here = Path.cwd()
    told: Message = {"relative": call("fs/read_text_file", path="some.txt")}
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
