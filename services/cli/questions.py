"""The agent's questions, asked where the turn is watched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from functools import partial

import grpc
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.cli.answering import APPROVING, DENYING, AwaitsAnswer
from services.cli.connection import Connection
from services.cli.forms import ACCEPT, filled_in
from services.cli.output import Output
from services.common.status import from_rpc_error

_LATE = "INTERACTION_NOT_PENDING"


def has_terminal() -> bool:
    """Whether somebody can be asked here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def option_of(options: list[record_pb2.InteractionOption], word: str) -> str | None:
    """The option that `approve`, `deny`, a number from 1 or an option's own id means; None for none."""
    kinds = {"approve": APPROVING, "y": APPROVING, "deny": DENYING, "n": DENYING}.get(word.lower(), ())
    for kind in kinds:
        for option in options:
            if option.kind == kind:
                return option.option_id
    if word.isascii() and word.isdigit() and 0 < int(word) <= len(options):
        return options[int(word) - 1].option_id
    return next((option.option_id for option in options if option.option_id == word), None)


async def confirmed(question: str) -> bool:
    """Ask on the terminal; anything but yes is no, and so is another Ctrl-C."""
    sys.stderr.write(question)
    sys.stderr.flush()
    with contextlib.suppress(asyncio.CancelledError):
        async with _lines() as lines:
            return (await lines.readline()).strip().lower() in (b"y", b"yes", b"s", b"stop")
    return False


async def answer(
    connection: Connection, session_id: str, interaction_id: str, option_id: str, values: str = ""
) -> None:
    """Answer a question, a form with JSON values; raises the call's error."""
    request = session_pb2.AnswerInteractionRequest(
        session_id=session_id, interaction_id=interaction_id, option_id=option_id, values=values
    )
    await connection.sessions.AnswerInteraction(request, metadata=connection.metadata)


async def pending(connection: Connection, session_id: str) -> list[session_pb2.Interaction]:
    """The questions that wait, oldest first."""
    request = session_pb2.ListInteractionsRequest(session_id=session_id, pending_only=True, page_size=1000)
    found = await connection.sessions.ListInteractions(request, metadata=connection.metadata)
    return list(found.interactions)


async def waits(connection: Connection, session_id: str, interaction_id: str) -> bool:
    """Whether a question still waits for its answer."""
    return any(each.interaction_id == interaction_id for each in await pending(connection, session_id))


class _NobodyThere(Exception):
    """The terminal's input has ended."""


class Asker:
    """Asks each question on the terminal, beside the stream, and forgets those that are settled elsewhere.

    When the terminal's input ends (Ctrl-D), the task that told of the question is cancelled, and
    `close` raises AwaitsAnswer: as without a terminal.
    """

    def __init__(self, connection: Connection, session_id: str, output: Output) -> None:
        """Nothing is asked before `see` is told of a question."""
        self._connection = connection
        self._session_id = session_id
        self._output = output
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._unanswered: AwaitsAnswer | None = None

    def see(self, record: record_pb2.Record) -> None:
        """Follow a record: a question opens, or closes."""
        body = record.body
        if body.HasField("interaction_opened"):
            opened = body.interaction_opened
            self._asked[opened.interaction_id] = asyncio.create_task(
                self._ask_or_leave(opened, record.seq, asyncio.current_task())
            )
        elif body.HasField("interaction_closed"):
            task = self._asked.pop(body.interaction_closed.interaction_id, None)
            if task is not None:
                task.cancel()

    @property
    def asking(self) -> bool:
        """Whether somebody is being asked."""
        return any(not task.done() for task in self._asked.values())

    async def close(self) -> None:
        """Ask no more. Raises AwaitsAnswer when nobody was there to be asked."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._unanswered is not None:
            raise self._unanswered

    async def _ask_or_leave(
        self, opened: record_pb2.InteractionOpened, seq: int, watcher: asyncio.Task[object] | None
    ) -> None:
        try:
            await self._ask(opened)
        except _NobodyThere:
            self._output.line("")
            self._unanswered = AwaitsAnswer(self._session_id, seq, opened)
            if watcher is not None:
                watcher.cancel()

    async def _ask(self, opened: record_pb2.InteractionOpened) -> None:
        async with self._turn, _lines() as lines:
            options = list(opened.options)
            for number, option in enumerate(options, start=1):
                self._output.line(f"  {number} {option.name}", "bold magenta")
            option_id = None
            while option_id is None:
                option_id = option_of(
                    options, (await self._typed(lines, "answer (number, y or n): ")).strip()
                )
            values = ""
            if opened.kind == record_pb2.INTERACTION_KIND_FORM and option_id == ACCEPT:
                values = await filled_in(opened.schema, partial(self._typed, lines), self._output.line)
            await self._send(opened.interaction_id, option_id, values)

    async def _typed(self, lines: asyncio.StreamReader, label: str) -> str:
        self._output.piece(label, "bold magenta")
        # What is empty has not even the end of a line: there is nothing to wait for any more.
        if not (line := await lines.readline()):
            raise _NobodyThere
        return line.decode(errors="replace")

    async def _send(self, interaction_id: str, option_id: str, values: str) -> None:
        try:
            await answer(self._connection, self._session_id, interaction_id, option_id, values)
        except grpc.aio.AioRpcError as error:
            told = from_rpc_error(error)
            if told.reason_name != _LATE:
                self._output.error(str(told))


@contextlib.asynccontextmanager
async def _lines() -> AsyncIterator[asyncio.StreamReader]:
    """Lines of the terminal, without a thread that would keep the program alive."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    # Opened anew: a description that is shared with standard output must go on blocking.
    terminal = open(os.ttyname(sys.stdin.fileno()), "rb", buffering=0)  # noqa: ASYNC230, SIM115, PTH123 (closed by the transport)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), terminal)
    try:
        yield reader
    finally:
        transport.close()
