"""The demo agent answers whatever comes on its stdin; JSON by hand, no client in between."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.peers import demo_command


def converse(*lines: str | bytes, directory: Path) -> list[dict[str, Any]]:
    """Send the lines and the end of input; what comes back."""
    sent = b"".join(line.encode() if isinstance(line, str) else line for line in lines)
    ended = subprocess.run(demo_command(), input=sent, cwd=directory, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def request(request_id: object, method: str, params: object = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + "\n"


@pytest.mark.parametrize("line", ["{not json\n", b"\xff\xfe\n", "[" * 100_000 + "\n", "\n"])
def test_what_is_no_json_is_a_parse_error(tmp_path: Path, line: str | bytes) -> None:
    first, second = converse(line, request(1, "initialize", {"protocolVersion": 1}), directory=tmp_path)
    assert (first["id"], first["error"]["code"]) == (None, -32700)
    assert second["result"]["protocolVersion"] == 1


@pytest.mark.parametrize("line", ["42\n", "null\n", "[1]\n", '"text"\n'])
def test_what_is_no_object_is_an_invalid_request(tmp_path: Path, line: str) -> None:
    (answer,) = converse(line, directory=tmp_path)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


def test_unknown_methods_are_refused_and_unknown_notifications_ignored(tmp_path: Path) -> None:
    notification = json.dumps({"jsonrpc": "2.0", "method": "session/telepathy"}) + "\n"
    stray = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {}}) + "\n"
    (answer,) = converse(notification, stray, request("a", "session/fork", {}), directory=tmp_path)
    assert (answer["id"], answer["error"]["code"]) == ("a", -32601)


@pytest.mark.parametrize("params", [None, [], {}, {"cwd": 5}, {"cwd": "relative"}])
def test_malformed_parameters_are_refused(tmp_path: Path, params: object) -> None:
    (answer,) = converse(request(1, "session/new", params), directory=tmp_path)
    assert answer["error"]["code"] == -32602


def test_a_second_prompt_meanwhile_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen(demo_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdin and agent.stdout
        print(request(1, "session/new", {"cwd": str(tmp_path)}), file=agent.stdin, end="", flush=True)
        session = json.loads(agent.stdout.readline())["result"]["sessionId"]
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "hang"}]}
        print(
            request(2, "session/prompt", params) + request(3, "session/prompt", params),
            file=agent.stdin,
            end="",
            flush=True,
        )
        answers: list[dict[str, Any]] = []
        while not answers:
            message = json.loads(agent.stdout.readline())
            answers += [message] if message.get("id") == 3 else []
        assert answers[0]["error"]["code"] == -32600
        agent.kill()


def test_lines_of_any_length_are_read(tmp_path: Path) -> None:
    extra = {"protocolVersion": 1, "padding": "x" * (20 * 1024 * 1024)}
    (answer,) = converse(request(1, "initialize", extra), directory=tmp_path)
    assert answer["result"]["protocolVersion"] == 1


def test_other_blocks_are_named(tmp_path: Path) -> None:
    with subprocess.Popen(demo_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdin and agent.stdout
        print(request(1, "session/new", {"cwd": str(tmp_path)}), file=agent.stdin, end="", flush=True)
        session = json.loads(agent.stdout.readline())["result"]["sessionId"]
        link = {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}
        embedded = {"type": "resource", "resource": {"uri": "file:///b.py", "text": "pass"}}
        prompt = [{"type": "text", "text": "look at"}, link, embedded]
        print(
            request(2, "session/prompt", {"sessionId": session, "prompt": prompt}),
            file=agent.stdin,
            end="",
            flush=True,
        )
        text = ""
        while "id" not in (message := json.loads(agent.stdout.readline())):
            update = message["params"]["update"]
            text += update["content"]["text"] if update["sessionUpdate"] == "agent_message_chunk" else ""
        assert text == "You said: look at\n(resource_link file:///a.py)\n(resource file:///b.py)"
        agent.kill()


def test_needs_nothing_but_its_directory(tmp_path: Path) -> None:
    """No site packages, no environment, another place."""
    python, *flags, source = demo_command()
    copy = tmp_path / "copy of demo" / "demo"
    copy.mkdir(parents=True)
    for file in Path(source).glob("*.py"):
        (copy / file.name).write_bytes(file.read_bytes())
    command = ["env", "-i", python, *flags, str(copy)]
    sent = request(1, "initialize", {}).encode()
    ended = subprocess.run(command, input=sent, cwd="/", capture_output=True, timeout=30)
    assert json.loads(ended.stdout)["result"]["agentInfo"]["name"] == "moorage-demo"
