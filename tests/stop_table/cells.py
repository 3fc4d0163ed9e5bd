"""One cell of the table: a session brought to its moment, the Stop, and everything read back afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.common.v1 import turn_pb2
from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.gates import Gate, Gates
from tests.runner.holding import delivering
from tests.runner.parts import Stack
from tests.runner.talks import PATIENCE, Talks, kinds_of
from tests.stop_table.moments import TOOL, Moment
from tests.stop_table.ordering import Answer, Column, Names, Stops
from tests.stop_table.reading import SECRET, Reading
from tests.stop_table.table import Line

Act = Callable[[], Awaitable[None]]

INTRODUCTION = f"who are you\nremember {SECRET}"
_END = "runner.finish_turn.before"
_BEGUN = (turn_pb2.TURN_STATE_RUNNING, turn_pb2.TURN_STATE_AWAITING_INPUT)
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
        self._reading = Reading(harbour.talks, harbour.database_url, moment, self._names)
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
        end = self._hold_end()
        answers = await self._column.order(self._stops)
        if end is not None:
            end.release()
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
        if self._moment.is_queued and not self._is_held:
            await self._talks.ended(self._names.session, self._names.first)
        if self._moment.has_turn and not self._is_held:
            await self._talks.ended(self._names.session, self._names.turn)
        for command_id in {answer.command_id for answer in answers if answer.command_id}:
            await self._command_is(command_id, _SETTLED)
        if self._column.afterwards is not None:
            answers = [*answers, *await self._column.afterwards(self._stops)]
        return await self._read(answers)

    def _hold_end(self) -> Gate | None:
        """Let no turn be over between two Stops of it."""
        if self._moment.state not in _BEGUN or self._moment.gate == _END:
            return None
        return self._harbour.gates.hold(_END, self._names.turn)

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
        return turn.state == self._moment.state and self._moment.phase in (turn.phase, None)

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
            return (await self._reading.command(command_id)).state in states

        await eventually(is_there, within=30, what=f"the Stop of {self._names.session} came so far")

    async def _read(self, answers: Sequence[Answer]) -> Line:
        if self._is_held:
            turn = await self._talks.turn(self._names.session, self._names.turn)
            assert turn.state == turn_pb2.TURN_STATE_QUEUED
        resumed = await self._reading.next_turn()
        self._release()
        if self._moment.has_turn:
            await self._talks.ended(self._names.session, self._names.turn)
        return await self._reading.line(self._column.name, answers, resumed)


async def _nothing() -> None:
    return


async def play(
    harbour: Harbour, moment: Moment, columns: Sequence[Column], before: Act = _nothing, after: Act = _nothing
) -> list[Line]:
    """All cells of a moment at once, each in its own session; `before` and `after` the Stops something happens."""
    cells = [Cell(harbour, moment, column) for column in columns]
    await asyncio.gather(*(cell.arrive() for cell in cells))
    await before()
    answers = await asyncio.gather(*(cell.stop() for cell in cells))
    await after()
    return await asyncio.gather(*(cell.settle(each) for cell, each in zip(cells, answers, strict=True)))
