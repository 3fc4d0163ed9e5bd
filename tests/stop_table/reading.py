"""What is read back of a cell: the line of the table, and what must be so in all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import EndReason, ResumeKind, RuntimeAfter, StopMethod, TurnState
from moorage.session.v1 import session_pb2

from tests.databases import fetch
from tests.processes import is_alive
from tests.runner.holding import native_in, pid_in
from tests.runner.talks import Talks, kinds_of
from tests.stop_table.moments import Moment
from tests.stop_table.ordering import Answer, Names, told
from tests.stop_table.table import Line

SECRET = "the lighthouse"


class Reading:
    """Reads a session whose Stop is settled."""

    def __init__(self, talks: Talks, database_url: str, moment: Moment, names: Names) -> None:
        self._talks = talks
        self._database_url = database_url
        self._moment = moment
        self._names = names

    async def command(self, command_id: str) -> session_pb2.Command:
        """A command as it stands."""
        request = session_pb2.GetCommandRequest(session_id=self._names.session, command_id=command_id)
        return (await self._talks.stub.GetCommand(request)).command

    async def line(self, stop: str, answers: Sequence[Answer], resumed: str) -> Line:
        """What the table says; `resumed` is how the next turn's agent was."""
        commands = [await self.command(command_id) for command_id in await self._command_ids()]
        turn, records = await self._turn()
        await self._check(turn, commands)
        return Line(
            stop=stop,
            answers=told(answers),
            commands=", ".join(map(_told_of, commands)) or "none",
            rows=str(len(commands)),
            turn="none" if turn is None else f"{_state(turn.state)}/{_reason(turn.end_reason)}",
            method="" if turn is None else _name(StopMethod, turn.stop_method),
            runtime="" if turn is None else _name(RuntimeAfter, turn.runtime_after),
            records=" ".join(records),
            next=resumed,
        )

    async def next_turn(self) -> str:
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
            self._database_url,
            "SELECT command_id FROM session.commands WHERE session_id = $1 ORDER BY create_time",
            self._names.session,
        )
        return [row["command_id"] for row in rows]


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
