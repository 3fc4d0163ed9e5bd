"""One cell of the table: a session brought to its moment, the Stop, and everything read back afterwards."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.common.v1 import turn_pb2
from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.turn_pb2 import EndReason, ResumeKind, RuntimeAfter, StopMethod, TurnState
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.databases import fetch
from tests.gates import Gate, Gates
from tests.processes import is_alive
from tests.runner.holding import delivering, native_in, pid_in
from tests.runner.parts import Stack
from tests.runner.talks import PATIENCE, Talks, kinds_of
from tests.stop_table.moments import TOOL, Moment
from tests.stop_table.ordering import Answer, Column, Names, Stops, told
from tests.stop_table.table import Line

SECRET = "the lighthouse"
INTRODUCTION = f"who are you\nremember {SECRET}"
_SETTLED = (session_pb2.COMMAND_STATE_APPLIED, session_pb2.COMMAND_STATE_OBSOLETE)
_AT_THE_RUNNER = (session_pb2.COMMAND_STATE_CLAIMED, *_SETTLED)


@dataclass(frozen=True, slots=True)
class Harbour:
    """The services that all cells share."""

    stack: Stack
    talks: Talks
    gates: Gates
    root: Path
    database_url: str


class Cell:
    """A moment and a way to stop, in a session of their own."""

    def __init__(self, harbour: Harbour, moment: Moment, column: Column) -> None:
        """Nothing has happened yet."""
        name = f"{moment.name} {column.name}".replace(" ", "-").replace("_", "-")
        self._harbour = harbour
        self._talks = harbour.talks
        self._moment = moment
        self._column = column
        self._names = Names(name, *(f"{role}-{name}" for role in ("before", "first", "turn", "later")))
        self._stops = Stops(harbour.talks, self._names)
        self._at, self._go = harbour.root / f"{name}.at", harbour.root / f"{name}.go"
        self._gate: Gate | None = None

    async def arrive(self) -> None:
        """Be at the moment; fails when that is not reached."""
        await self._talks.create(self._names.session, approval_policy=self._moment.policy)
        before = await self._talks.run(self._names.session, self._names.before, INTRODUCTION)
        assert before.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
        if self._moment.is_cold:
            await self._cool()
        if self._moment.is_queued:
            await self._occupy()
        if self._moment.has_turn:
            await self._begin()

    async def stop(self) -> Sequence[Answer]:
        """Order the Stop; return when its runner has it, or when it is settled."""
        answers = await self._column.order(self._stops)
        if not self._moment.is_killed:
            for command_id in {answer.command_id for answer in answers if answer.command_id}:
                await self._command_is(command_id, _AT_THE_RUNNER)
        return answers

    async def settle(self, answers: Sequence[Answer]) -> Line:
        """Let everything go on, and read what came of it once that is settled."""
        if not self._moment.is_hung or self._column.spares:
            self._release()
        if self._column.spares or (self._moment.is_queued and not self._is_held):
            await self._go_on()
        if self._moment.has_turn and not self._is_held:
            await self._talks.ended(self._names.session, self._names.turn)
        for command_id in {answer.command_id for answer in answers if answer.command_id}:
            await self._command_is(command_id, _SETTLED)
        if self._column.afterwards is not None:
            answers = [*answers, *await self._column.afterwards(self._stops)]
        return await self._read(answers)

    @property
    def _is_held(self) -> bool:
        """Whether the Stop holds the queue in which the turn is."""
        return self._moment.is_queued and not self._column.is_named

    async def _occupy(self) -> None:
        """Another turn is in a tool."""
        await self._start(self._names.first, TOOL)
        await eventually(self._at.exists, within=30, what="the tool runs")

    async def _cool(self) -> None:
        """End the runtime that the turn before has left."""
        (runner,) = self._harbour.stack.runners.values()
        async with delivering(runner.endpoint) as deliveries:
            await eventually(lambda: deliveries.end_runtime(self._names.session), what="the agent ended")

    async def _begin(self) -> None:
        moment, names = self._moment, self._names
        if moment.gate:
            self._gate = self._harbour.gates.hold(moment.gate, names.turn)
        await self._start(names.turn, moment.prompt)
        if self._gate is not None:
            await self._gate.reached()
        if moment.prompt == TOOL:
            await eventually(self._in_tool, within=30, what="the tool runs")
        await eventually(self._is_there, within=30, what=f"{names.turn} was at its moment")

    async def _start(self, turn_id: str, prompt: str) -> None:
        prompt = prompt.replace("AT", str(self._at)).replace("GO", str(self._go))
        request = session_pb2.StartTurnRequest(
            session_id=self._names.session,
            turn_id=turn_id,
            prompt=[ContentBlock(text=TextContent(text=prompt))],
        )
        if self._moment.is_queued:
            request.if_busy = session_pb2.IF_BUSY_ENQUEUE
        await self._talks.stub.StartTurn(request, timeout=PATIENCE)

    async def _in_tool(self) -> bool:
        records = await self._talks.records(self._names.session, self._names.turn)
        return self._at.exists() and "tool_call" in kinds_of(records)

    async def _is_there(self) -> bool:
        turn = await self._talks.turn(self._names.session, self._names.turn)
        return (turn.state, turn.phase) == self._moment.shows

    def _release(self) -> None:
        if self._gate is not None:
            self._gate.release()

    async def _go_on(self) -> None:
        """Let a turn that nobody stops end by itself."""
        self._go.touch()
        if self._moment.policy == turn_pb2.APPROVAL_POLICY_ASK:
            await self._answer()

    async def _answer(self) -> None:
        async def asks() -> bool:
            turn = await self._talks.turn(self._names.session, self._names.turn)
            return bool(turn.pending_interaction_ids)

        await eventually(asks, within=30, what="the agent asks")
        (asked,) = (await self._talks.turn(self._names.session, self._names.turn)).pending_interaction_ids
        request = session_pb2.AnswerInteractionRequest(
            session_id=self._names.session, interaction_id=asked, option_id="once"
        )
        await self._talks.stub.AnswerInteraction(request)

    async def _command_is(
        self, command_id: str, states: Sequence[session_pb2.CommandState.ValueType]
    ) -> None:
        async def is_there() -> bool:
            return (await self._command(command_id)).state in states

        await eventually(is_there, within=30, what=f"the Stop of {self._names.session} came so far")

    async def _command(self, command_id: str) -> session_pb2.Command:
        request = session_pb2.GetCommandRequest(session_id=self._names.session, command_id=command_id)
        return (await self._talks.stub.GetCommand(request)).command

    async def _read(self, answers: Sequence[Answer]) -> Line:
        resumed = await self._next()
        self._release()
        if self._moment.has_turn:
            await self._talks.ended(self._names.session, self._names.turn)
        commands = [await self._command(command_id) for command_id in await self._command_ids()]
        turn, records = await self._turn()
        await self._check(turn, commands)
        return Line(
            stop=self._column.name,
            answers=told(answers),
            commands=", ".join(map(_told_of, commands)) or "none",
            rows=str(len(commands)),
            turn="none" if turn is None else f"{_state(turn.state)}/{_reason(turn.end_reason)}",
            method="" if turn is None else _name(StopMethod, turn.stop_method),
            runtime="" if turn is None else _name(RuntimeAfter, turn.runtime_after),
            records=" ".join(records),
            next=resumed,
        )

    async def _next(self) -> str:
        """Run another turn: how the agent was resumed. It must remember, and be the same one only if warm."""
        session = self._names.session
        turn = await self._talks.run(session, "next", "who are you\nrecall")
        said = await self._talks.said(session, "next")
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert SECRET in said
        is_warm = turn.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
        first = await self._talks.said(session, self._names.before)
        last = await self._said_of_itself() or first
        assert native_in(said) == native_in(first)
        assert (pid_in(said) == pid_in(last)) is is_warm
        gone = {pid_in(first), pid_in(last)} - {pid_in(said)}
        assert not any(map(is_alive, gone))
        return _name(ResumeKind, turn.metadata.resume_kind)

    async def _said_of_itself(self) -> str:
        """What the agent told of itself in the turn at the moment, if it did."""
        if not self._moment.has_turn:
            return ""
        said = await self._talks.said(self._names.session, self._names.turn)
        return said if "pid " in said else ""

    async def _turn(self) -> tuple[session_pb2.Turn | None, list[str]]:
        if not self._moment.has_turn:
            return None, []
        turn = await self._talks.turn(self._names.session, self._names.turn)
        kinds = kinds_of(await self._talks.records(self._names.session, self._names.turn))
        assert kinds.count("turn_ended") == 1
        # How many pieces a text has is a matter of time.
        return turn, [kind for kind, _ in itertools.groupby(kinds)]

    async def _check(self, turn: session_pb2.Turn | None, commands: Sequence[session_pb2.Command]) -> None:
        """What is the same in all cells."""
        request = session_pb2.GetSessionRequest(session_id=self._names.session)
        session = (await self._talks.stub.GetSession(request)).session
        assert not session.HasField("turn")
        for command in commands:
            assert command.HasField("settle_time")
            if turn and command.turn_id == turn.turn_id:
                assert (command.stop_method, command.runtime_after) in (
                    (turn.stop_method, turn.runtime_after),
                    (0, 0),
                )
        if turn is not None:
            assert not turn.stopping
            assert not turn.pending_interaction_ids

    async def _command_ids(self) -> list[str]:
        rows = await fetch(
            self._harbour.database_url,
            "SELECT command_id FROM session.commands WHERE session_id = $1 ORDER BY create_time",
            self._names.session,
        )
        return [row["command_id"] for row in rows]


async def play(harbour: Harbour, moment: Moment, columns: Sequence[Column], kill: Any = None) -> list[Line]:
    """All cells of a moment at once, each in its own session."""
    cells = [Cell(harbour, moment, column) for column in columns]
    await asyncio.gather(*(cell.arrive() for cell in cells))
    if kill is not None:
        await kill()
    answers = await asyncio.gather(*(cell.stop() for cell in cells))
    return await asyncio.gather(*(cell.settle(each) for cell, each in zip(cells, answers, strict=True)))


def _told_of(command: session_pb2.Command) -> str:
    state = session_pb2.CommandState.Name(command.state).removeprefix("COMMAND_STATE_")
    outcome = session_pb2.CommandOutcome.Name(command.outcome).removeprefix("COMMAND_OUTCOME_")
    return f"{state}/{outcome}"


def _state(state: TurnState.ValueType) -> str:
    return TurnState.Name(state).removeprefix("TURN_STATE_")


def _reason(reason: EndReason.ValueType) -> str:
    return EndReason.Name(reason).removeprefix("END_REASON_")


_PREFIXES = {StopMethod: "STOP_METHOD_", RuntimeAfter: "RUNTIME_AFTER_", ResumeKind: "RESUME_KIND_"}


def _name(enum: Any, value: int) -> str:
    """The name without its prefix; empty for none."""
    return enum.Name(value).removeprefix(_PREFIXES[enum]) if value else ""
