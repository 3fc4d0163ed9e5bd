"""What comes before the first prompt, and rogues that go wrong there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from .settings import with_settings
from .wire import SESSION, Message, chunk, end, line_of, receive, send, update, write

introduced: Message = {}


def as_it_should_be() -> Message:
    """The first prompt, after all that comes before it."""
    return opened(introduce())


def introduce(version: int = 1, **fields: object) -> Message:
    """Answer the introduction; the request for a session that follows."""
    introduced.update(receive())
    send(id=introduced["id"], result={"protocolVersion": version, "authMethods": [], **fields})
    return receive()


def opened(opening: Message) -> Message:
    """Answer the request for a session; the prompt that follows."""
    if opening["method"] == "session/load":
        answers_within_updates(opening)
    send(id=opening["id"], result={"sessionId": SESSION})
    return receive()


def exits_at_once() -> NoReturn:
    os._exit(7)


def newer() -> Message:
    """Speaks a version that nobody knows yet."""
    return opened(introduce(version=2))


def wants_login() -> NoReturn:
    methods = [{"id": "browser", "name": "In a browser", "description": "opens a page"}]
    opening = introduce(authMethods=methods)
    send(id=opening["id"], error={"code": -32000, "message": "Authentication required"})
    wait_for_the_end()


def malformed_session() -> NoReturn:
    opening = introduce()
    send(id=opening["id"], result={"sessionId": 5})
    wait_for_the_end()


def speaks_before_its_session() -> Message:
    """Updates of a session that the client does not know yet, in the same write as its answer and before."""
    opening = introduce()
    update(sessionUpdate="available_commands_update", availableCommands=[])
    chunk("too early ")
    early = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "just before "}}
    params = {"sessionId": SESSION, "update": early}
    write(
        line_of(method="session/update", params=params)
        + line_of(id=opening["id"], result={"sessionId": SESSION})
    )
    return receive()


def wait_for_the_end() -> NoReturn:
    sys.stdin.buffer.read()
    sys.exit()


def says_hello(prompt: Message) -> None:
    chunk("hello")
    end(prompt)


def answers_within_updates(request: Message) -> NoReturn:
    """An update, the answer and an update in a single write, to whatever is asked."""
    content = {"type": "text", "text": "x"}
    params = {"sessionId": SESSION, "update": {"sessionUpdate": "agent_message_chunk", "content": content}}
    piece = line_of(method="session/update", params=params)
    while True:
        write(piece + line_of(id=request["id"], result={"stopReason": "end_turn"}) + piece)
        request = receive()


def tells_capabilities(prompt: Message) -> None:
    """What the client said of itself."""
    chunk(json.dumps(introduced["params"]["clientCapabilities"]))
    end(prompt)


def loads() -> Message:
    """Opens a session of before as well as a new one; the prompt that follows."""
    opening = introduce(agentCapabilities={"loadSession": True})
    if opening["method"] == "session/load":
        chunk("replayed ")
        send(id=opening["id"], result={})
        return {**receive(), "loaded": True}
    send(id=opening["id"], result={"sessionId": SESSION})
    return receive()


OPENINGS: dict[str, Callable[[], Message]] = {
    "exits_at_once": exits_at_once,
    "newer": newer,
    "wants_login": wants_login,
    "malformed_session": malformed_session,
    "speaks_early": speaks_before_its_session,
    "ignores_cancel_after_load": loads,
    "tells_settings": lambda: with_settings(introduce()),
    "keeps_secrets": lambda: with_settings(introduce(agentCapabilities={"mcpCapabilities": {"http": True}})),
}
speaks_early = says_hello
