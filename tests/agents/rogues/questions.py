"""Rogues that ask for permission as nobody should."""

from __future__ import annotations

import json
import sys

from .wire import SESSION, Message, ask, chunk, end, receive, send


def asks_on(prompt: Message) -> None:
    """Asks again after it was cancelled, and tells the answers."""
    ask("first")
    said = [receive(), receive()]
    ask("second")
    said.append(receive())
    chunk(json.dumps([message.get("method") or message["result"] for message in said]))
    end(prompt, "cancelled")


def floods_with_questions(prompt: Message) -> None:
    for number in range(1000):
        ask(str(number))
    sys.stdin.buffer.read()


def asks_two(prompt: Message) -> None:
    """Goes on while two questions are open, and tells the answers by their titles."""
    chunk("before ")
    ask("first")
    chunk("between ")
    ask("second")
    chunk("beside ")
    outcomes: Message = {}
    reason = "end_turn"
    while len(outcomes) < 2:
        message = receive()
        if message.get("method") == "session/cancel":
            reason = "cancelled"
        else:
            outcomes[message["id"]] = message["result"]["outcome"]
    chunk(json.dumps(outcomes))
    end(prompt, reason)


def asks_badly(prompt: Message) -> None:
    """Questions that nobody can answer."""
    same = [{"optionId": "same", "name": name, "kind": "allow_once"} for name in "ab"]
    codes = []
    for options in ([], same, [{"optionId": "", "name": "Empty", "kind": "allow_once"}]):
        params = {"sessionId": SESSION, "toolCall": {"toolCallId": "t"}, "options": options}
        send(id="q", method="session/request_permission", params=params)
        codes.append(receive()["error"]["code"])
    chunk(json.dumps(codes))
    end(prompt)


def asks_too_much(prompt: Message) -> None:
    """A question that is too large to be stored."""
    chunk("before ")
    ask("x" * 300_000)
    chunk(json.dumps(receive()["result"]["outcome"]))
    end(prompt)


def ends_beside_its_question(prompt: Message) -> None:
    """Ends while its question is open; takes prompts for ever."""
    while True:
        ask("unattended")
        chunk("done")
        end(prompt)
        prompt = receive()
        while "method" not in prompt:
            prompt = receive()


def waits_for_its_answer(prompt: Message) -> None:
    """Asks, waits however long it takes, and tells what it was answered."""
    chunk("may I? ")
    ask("only yes")
    chunk(json.dumps(receive()["result"]["outcome"]))
    end(prompt)


def fills_in_badly(prompt: Message) -> None:
    """Forms that nobody can fill in, one that belongs to no session, and a page."""
    told = []
    for params in (
        {"mode": "form", "message": "no schema", "sessionId": SESSION},
        {"mode": "telepathy", "message": "think", "sessionId": SESSION},
        {"mode": "form", "message": "no session", "requestedSchema": {}, "requestId": 1},
        {"mode": "form", "requestedSchema": {}, "sessionId": SESSION},
    ):
        send(id="f", method="elicitation/create", params=params)
        told.append(receive()["error"]["code"])
    page = {"mode": "url", "message": "Log in at", "url": "http://127.0.0.1/login", "elicitationId": "e"}
    send(id="p", method="elicitation/create", params={**page, "sessionId": SESSION})
    told.append(receive()["result"])
    send(method="elicitation/complete", params={"elicitationId": "e"})
    chunk(json.dumps(told))
    end(prompt)


def asks_the_same_twice(prompt: Message) -> None:
    """Whether it may edit two files and run one command twice; tells the answers; takes prompts for ever."""
    options = [
        {"optionId": name, "name": name, "kind": kind}
        for name, kind in (("once", "allow_once"), ("always", "allow_always"), ("no", "reject_once"))
    ]
    while True:
        for kind, title in (("edit", "a.txt"), ("edit", "b.txt"), ("execute", "ls"), ("execute", "ls")):
            call = {"toolCallId": f"{kind} {title}", "title": title, "kind": kind}
            params = {"sessionId": SESSION, "toolCall": call, "options": options}
            send(id="q", method="session/request_permission", params=params)
            chunk(receive()["result"]["outcome"]["optionId"] + " ")
        end(prompt)
        prompt = receive()
