"""What the words of a prompt do; the table is in the package's docstring."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from . import client
from .turn import Turn
from .wire import RpcError

Command = Callable[[Turn, "re.Match[str]"], None]
COMMANDS: list[tuple[re.Pattern[str], Command]] = []
SECONDS = r"(\d+(?:\.\d+)?)"
PIECES = 32


def carry_out(turn: Turn, text: str) -> None:
    """Do what each line says; lines beside each other that say nothing are echoed together."""
    words: list[str] = []
    for line in [*filter(is_told, text.splitlines()), None]:
        call = find_command(line.strip()) if line else None
        if line and not call:
            words.append(line)
            continue
        if words:
            echo(turn, "\n".join(words))
            words.clear()
        if call:
            call(turn)


def is_told(line: str) -> bool:
    """Whether the line wants something: it is not empty, and no quotation."""
    return bool(line.strip()) and not line.startswith(">")


def find_command(line: str) -> Callable[[Turn], None] | None:
    for pattern, function in COMMANDS:
        if match := pattern.fullmatch(line):
            return lambda turn: function(turn, match)
    return None


def echo(turn: Turn, text: str) -> None:
    turn.plan("in_progress", "pending")
    turn.stream("I was told ", "no command, ", "so I repeat.", kind="agent_thought_chunk")
    turn.plan("completed", "in_progress")
    turn.stream("You said: ", *pieces_of(text))
    turn.plan("completed", "completed")


def pieces_of(text: str) -> list[str]:
    """Cut into words, or groups of words where there are many; nothing is lost."""
    words = re.findall(r"\s*\S+\s*", text)
    size = len(words) // PIECES + 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def command(pattern: str) -> Callable[[Command], Command]:
    """Register the function for lines that match as a whole, in any case."""

    def register(function: Command) -> Command:
        COMMANDS.append((re.compile(pattern, re.IGNORECASE), function))
        return function

    return register


@command(r"say (.+)")
def say(turn: Turn, match: re.Match[str]) -> None:
    turn.stream(*pieces_of(match[1]))


@command(r"think (.+)")
def think(turn: Turn, match: re.Match[str]) -> None:
    turn.stream(*pieces_of(match[1]), kind="agent_thought_chunk")


@command(r"run (.+)")
def run(turn: Turn, match: re.Match[str]) -> None:
    with turn.tool_call(match[1]) as call:
        code = turn.run_tool(call)
    report(turn, ending_of(code))


@command(r"ask to run (.+)")
def ask_to_run(turn: Turn, match: re.Match[str]) -> None:
    with turn.tool_call(match[1]) as call:
        code = turn.run_tool(call) if turn.permitted(call) else None
        if code is None:
            turn.end_tool(call, "failed", "(refused)")
    report(turn, None if code is None else ending_of(code))


@command(r"fill in (.+)")
def fill_in(turn: Turn, match: re.Match[str]) -> None:
    names = [name.strip() for name in match[1].split(",")]
    try:
        values = client.values(turn, f"Please fill in {match[1]}", names)
    except RpcError as error:
        turn.stream("The client asked nobody: ", f"{error}\n")
        return
    if values is None:
        turn.stream("Nothing was ", "filled in.\n")
    else:
        turn.stream(*[f"{name}: {values.get(name, '')}\n" for name in names])


@command(r"terminal (.+)")
def run_in_terminal(turn: Turn, match: re.Match[str]) -> None:
    with turn.tool_call(match[1]) as call:
        try:
            with client.terminal(turn, match[1]) as terminal_id:
                shown = {"type": "terminal", "terminalId": terminal_id}
                turn.progress(call, status="in_progress", content=[shown])
                status = turn.ask("terminal/wait_for_exit", terminalId=terminal_id)
        except RpcError as error:
            turn.end_tool(call, "failed", f"({error})")
            turn.stream("The client gave no terminal: ", f"{error}\n")
            return
        done = status.get("exitCode") == 0
        turn.progress(call, status="completed" if done else "failed", rawOutput=status)
    signal = status.get("signal")
    report(turn, f"signal {signal}" if signal else f"exit code {status.get('exitCode')}")


def ending_of(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def report(turn: Turn, ending: str | None) -> None:
    """Say how the command ended; None for one that did not run."""
    if ending is None:
        turn.stream("The command was refused ", "and did not run.\n")
    else:
        turn.stream("The command ended ", f"with {ending}.\n")


@command(r"read (\S+)(?: from line (\d+))?(?: for (\d+) lines?)?")
def read(turn: Turn, match: re.Match[str]) -> None:
    try:
        text = client.read_text(turn, match[1], match[2], match[3])
    except RpcError as error:
        turn.stream(f"The client did not read {match[1]}: ", f"{error}\n")
    else:
        turn.stream(*pieces_of(text) or ["(nothing)\n"])


@command(r"write (\S+) (.+)")
def write(turn: Turn, match: re.Match[str]) -> None:
    try:
        client.write_text(turn, match[1], f"{match[2]}\n")
    except RpcError as error:
        turn.stream(f"The client did not write {match[1]}: ", f"{error}\n")
    else:
        turn.stream("The client wrote ", f"{match[1]}.\n")


@command(f"sleep {SECONDS}")
def sleep(turn: Turn, match: re.Match[str]) -> None:
    turn.stream(f"Sleeping {match[1]} s.\n")
    turn.pause(float(match[1]))
    turn.stream(f"Slept {match[1]} s.\n")


@command(rf"count to (\d+)(?: into (\S+))?(?: every {SECONDS})?")
def count(turn: Turn, match: re.Match[str]) -> None:
    turn.session.make_state_directory()
    path = Path(turn.session.directory, match[2]) if match[2] else turn.session.state / "count.log"
    message_id = os.urandom(8).hex()
    with path.open("a", encoding="utf-8") as log:
        for number in range(1, int(match[1]) + 1):
            turn.check()
            log.write(f"{number}\n")
            log.flush()
            turn.chunk(f"{number}\n", message_id)
            if match[3]:
                turn.pause(float(match[3]))


@command(r"remember (.+)")
def remember(turn: Turn, match: re.Match[str]) -> None:
    turn.session.remember(match[1])
    turn.stream("Remembered: ", *pieces_of(match[1]))


@command(r"recall")
def recall(turn: Turn, match: re.Match[str]) -> None:
    turn.stream(*[f"{text}\n" for text in turn.session.memory] or ["Nothing remembered.\n"])


@command(r"(?:who are you|pid)\??")
def who_are_you(turn: Turn, match: re.Match[str]) -> None:
    trace = turn.meta.get("traceparent") or os.environ.get("TRACEPARENT") or "none"
    turn.stream(f"pid {os.getpid()}\n", f"session {turn.session.id}\n", f"traceparent {trace}\n")


@command(r"fail(?: (.+))?")
def fail(turn: Turn, match: re.Match[str]) -> NoReturn:
    raise RpcError(-32603, match[1] or "told to fail")


@command(r"exit (\d+)")
def exit_process(turn: Turn, match: re.Match[str]) -> NoReturn:
    os._exit(int(match[1]))


@command(r"help")
def tell_commands(turn: Turn, match: re.Match[str]) -> None:
    """The table of the package's docstring."""
    table = (sys.modules[__package__ or ""].__doc__ or "").split("\n\n")[2]
    turn.stream(*pieces_of(f"Each line of a prompt is one command:\n\n{table}\n"))


@command(r"hang(?: hard)?")
def hang(turn: Turn, match: re.Match[str]) -> NoReturn:
    turn.stream("Hanging.\n")
    turn.hang()
