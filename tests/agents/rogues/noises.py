"""Rogues that say what no schema knows, or in a form that few expect."""

from __future__ import annotations

import json
import sys

from .wire import SESSION, Message, chunk, end, receive, send, update, write


def noise(prompt: Message) -> None:
    """Lines that are no messages, before, between and after those that are."""
    write(b'42\nnull\n[1]\n"text"\ntrue\n{not json\n\n \r\n\xff\xfe\x00binary\x80\n')
    chunk("one")
    write(b"[" * 100_000 + b"\n")
    write(b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"rogue","update":')
    write(b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"two"},"x":NaN}}}\r\n')
    end(prompt)


def unknown(prompt: Message) -> None:
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


def surrogates(prompt: Message) -> None:
    write(
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"rogue","update":'
        b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text",'
        b'"text":"lone \\ud83d and \\uDE00, pair \\ud83d\\ude00"},"\\udfff":[{"\\ud800":1}]}}}\n'
    )
    end(prompt)


def long_lines(prompt: Message) -> None:
    """Of as many MiB as the arguments say."""
    for size in sys.argv[2:]:
        chunk("x" * (int(size) * 1024 * 1024))
    end(prompt)


def shouts(prompt: Message) -> None:
    """20 MB on stderr, a part of them before and a part after what it says; lines, and one that never ends."""
    for _ in range(10):
        sys.stderr.buffer.write(b"a long story without an end " * 37_500)
        sys.stderr.buffer.flush()
        chunk("said ")
        sys.stderr.buffer.write(b"a line\n" * 150_000)
        sys.stderr.buffer.flush()
    end(prompt)


def nul(prompt: Message) -> None:
    """U+0000, in text, in a tool call and in a name."""
    chunk("before ")
    chunk("zero \0 within ")
    update(sessionUpdate="tool_call", toolCallId="call\0", title="zero \0", rawInput={"\0": "\0"})
    update(sessionUpdate="telepathy\0", thoughts=["\0"])
    chunk("after")
    end(prompt, "end_turn\0")
