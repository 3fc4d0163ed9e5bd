"""Rogues whose prompts end in strange ways, or go on after their end."""

from __future__ import annotations

import json
import os
import signal
import sys

from .wire import Message, ask, chunk, end, receive, send, write


def exits(prompt: Message) -> None:
    """In the middle of a line."""
    chunk("last words")
    write(b'{"jsonrpc":"2.0","id":3,"resu')
    os._exit(3)


def eats_memory(prompt: Message) -> None:
    """Until there is none."""
    chunk("hungry")
    eaten = []
    while True:
        eaten.append(b"x" * 2**20)


def closes(prompt: Message) -> None:
    """Its output ends, the process lives on."""
    chunk("before the end")
    os.close(1)
    sys.stdin.buffer.read()


def answers_without_line_end(prompt: Message) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}}).encode())
    os._exit(0)


def late(prompt: Message) -> None:
    """Goes on after the end, and answers twice."""
    chunk("in time")
    end(prompt)
    chunk("late")
    end(prompt, "refusal")
    ask("late question")
    chunk(json.dumps(receive()["result"]))


def chatters(prompt: Message) -> None:
    """Takes prompts for ever, and goes on talking after each end."""
    while True:
        chunk("in time")
        end(prompt)
        for number in range(50):
            chunk(f"late {number}")
        prompt = receive()


def repeats(prompt: Message) -> None:
    """Says what it was told; takes prompts for ever."""
    while True:
        for block in prompt["params"]["prompt"]:
            chunk(block["text"] + "\n")
        end(prompt)
        prompt = receive()


def silent(prompt: Message) -> None:
    """Never answers, and does not read either."""
    chunk("silent from here on")
    os.read(int(sys.argv[2]) if len(sys.argv) > 2 else os.pipe()[0], 1)


def strange_ends(prompt: Message) -> None:
    """A new stop reason, then none at all, an error that is a string, and an error without fields."""
    end(prompt, "out_of_coffee")
    send(id=receive()["id"], result=None)
    send(id=receive()["id"], error="just no")
    send(id=receive()["id"], error={"code": -32000, "message": "log in first"})


def dies_by_a_signal(prompt: Message) -> None:
    chunk("last words")
    os.kill(os.getpid(), signal.SIGSEGV)


def ends_with_nonsense(prompt: Message) -> None:
    """Its numbers are none."""
    send(id=prompt["id"], result={"stopReason": "end_turn", "usage": {"totalTokens": "lots"}})


def stops_talking(prompt: Message) -> None:
    """As one whose model went away: says something, reads on, and never ends the prompt."""
    chunk("I will now")
    while True:
        receive()
