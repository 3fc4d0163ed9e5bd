"""Rogues that take a cancel in another way than they should."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NoReturn

from .wire import Message, chunk, end, receive, send


def exits_when_cancelled(prompt: Message) -> None:
    chunk("at work")
    receive()
    os._exit(0)


def fails_when_cancelled(prompt: Message) -> None:
    chunk("at work")
    receive()
    send(id=prompt["id"], error={"code": -32603, "message": "aborted"})


def ignores_cancel(prompt: Message) -> NoReturn:
    """Goes on as if nothing was said; ends with its input."""
    chunk("at work")
    while True:
        receive()
        chunk(" still at work")


def loses_an_early_cancel(prompt: Message) -> NoReturn:
    """What comes right behind the prompt is lost, and it listens to nothing afterwards."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_of_deafness = time.monotonic() + 0.2
    while (left := end_of_deafness - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and not os.read(0, 4096):
            break
    chunk("at work")
    while True:
        signal.pause()


def ignores_cancel_after_load(prompt: Message) -> None:
    """Honours a cancel in a session of its own, and none in one that it has loaded."""
    while True:
        chunk("at work")
        message = receive()
        while prompt.get("loaded"):
            message = receive()
        if message.get("method") == "session/cancel":
            end(prompt, "cancelled")
            prompt = receive()


def ends_a_cancelled_prompt_again(prompt: Message) -> None:
    """Answers the cancel, and once more when the next prompt has come; takes prompts for ever."""
    chunk("at work")
    receive()
    end(prompt, "cancelled")
    following = receive()
    chunk("one ")
    end(prompt, "end_turn")
    chunk("two ")
    end(prompt, "cancelled")
    chunk("three")
    end(following)


def confirms_a_cancel_and_talks_on(prompt: Message) -> None:
    """Says that it was cancelled, and a second time what it was about to say; takes prompts for ever."""
    chunk("at work")
    while True:
        receive()
        end(prompt, "cancelled")
        for number in range(20):
            chunk(f" late {number}")
        prompt = receive()
        chunk("next")
        end(prompt)
