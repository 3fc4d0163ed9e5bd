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
