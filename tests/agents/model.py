"""A chat-completions server whose model does what the last message of the user says.

say TEXT            streams TEXT, a word per piece
use TOOL JSON       calls a tool with these arguments, then tells what came out of it
recall              tells the messages of the user before
tools               tells the names of the tools it was offered
never end           streams words until the caller goes away
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

Message = dict[str, Any]


class Model:
    """Remembers what it was asked; `left` is set when a caller went away in the middle of an answer."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.left = asyncio.Event()
        self.base_url = ""

    def models(self) -> list[str]:
        """The models that were asked for, of requests that offer tools."""
        return [str(request["model"]) for request in self.requests if request.get("tools")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _request(reader)
            self.requests.append(request)
            try:
                await self._answer(request, reader, writer)
            except ConnectionError:
                self.left.set()
        writer.close()

    async def _answer(
        self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        gone = asyncio.create_task(reader.read(1))
        try:
            for delta in _deltas(request):
                writer.write(_event({"delta": delta, "finish_reason": None}))
                await writer.drain()
                if "never end" in _asked(request):
                    await asyncio.wait({gone}, timeout=0.02)
                if gone.done():
                    raise ConnectionResetError
        finally:
            gone.cancel()
        reason = "tool_calls" if _calls_tool(request) else "stop"
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        writer.write(_event({"delta": {}, "finish_reason": reason}, usage=usage) + b"data: [DONE]\n\n")
        await writer.drain()


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[Model]:
    """A model that listens on a free port of this address, and of no other."""
    model = Model()
    server = await asyncio.start_server(model.serve, host, 0)
    model.base_url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield model


async def _request(reader: asyncio.StreamReader) -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
    return dict(json.loads(await reader.readexactly(length)))


def _event(choice: Message, **fields: object) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
    return b"data: " + json.dumps({**chunk, "choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def _deltas(request: Message) -> Iterator[Message]:
    asked = _asked(request)
    yield {"role": "assistant"}
    if not request.get("tools"):
        # Agents have a title made for the session.
        yield {"content": "A title"}
    elif results := _results(request):
        yield {"content": "it said: " + results[-1]}
    elif asked.startswith("use "):
        _, name, arguments = asked.split(" ", 2)
        function = {"name": name, "arguments": arguments}
        yield {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
    elif asked.startswith("say "):
        yield from ({"content": word + " "} for word in asked[4:].split())
    elif asked.startswith("recall"):
        yield {"content": "you said: " + " | ".join(_said(request)[:-1])}
    elif asked.startswith("tools"):
        yield {"content": " ".join(sorted(tool["function"]["name"] for tool in request["tools"]))}
    else:
        while True:
            yield {"content": "on and on "}


def _calls_tool(request: Message) -> bool:
    return bool(request.get("tools")) and _asked(request).startswith("use ") and not _results(request)


def _results(request: Message) -> list[str]:
    """What tools gave after the last message of the user."""
    results: list[str] = []
    for message in request["messages"]:
        if message["role"] == "user":
            results = []
        elif message["role"] == "tool":
            results.append(_text(message["content"]))
    return results


def _asked(request: Message) -> str:
    said = _said(request)
    # Agents add reminders of their own.
    return said[-1].partition("<system-reminder>")[0].strip() if said else ""


def _said(request: Message) -> list[str]:
    return [_text(message["content"]) for message in request["messages"] if message["role"] == "user"]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
