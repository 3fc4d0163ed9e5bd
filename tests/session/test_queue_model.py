"""Slot and queue against a model of their rules (T2), on the real store with random histories."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moorage.common.v1 import turn_pb2

from services.common.errors import MoorageError
from services.session.turns import IfBusy
from tests.databases import fetch
from tests.session.desks import Desk, Holder
from tests.session.queues import close, expire, queue, run_out
from tests.session.stops import stop

ENDINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "complete": {},
    "fail": {
        "state": turn_pb2.TURN_STATE_FAILED,
        "end_reason": turn_pb2.END_REASON_AGENT_EXITED,
        "error": turn_pb2.TurnError(code="AGENT_EXITED"),
    },
    "lose": {
        "state": turn_pb2.TURN_STATE_LOST,
        "end_reason": turn_pb2.END_REASON_EXECUTION_MISSING,
    },
    "confirm": {
        "state": turn_pb2.TURN_STATE_STOPPED,
        "end_reason": turn_pb2.END_REASON_USER_STOP,
        "stop_method": turn_pb2.STOP_METHOD_AGENT_CONFIRMED,
    },
}
ACTIONS: Final = st.one_of(
    st.tuples(st.just("start"), st.sampled_from([*IfBusy, IfBusy.ENQUEUE, IfBusy.INTERRUPT])),
    st.tuples(st.just("begin"), st.none()),
    st.tuples(st.just("end"), st.sampled_from(list(ENDINGS))),
    st.tuples(st.just("stop"), st.booleans()),
    st.tuples(st.just("withdraw"), st.integers(0, 3)),
    st.tuples(st.just("run out"), st.integers(0, 3)),
    st.tuples(st.just("expire"), st.none()),
    st.tuples(st.sampled_from(["close", "expire", "begin"]), st.none()),
)


@dataclass
class Model:
    """What the rules say, in words as short as possible; `slot` has [turn, begun, reason to stop]."""

    slot: tuple[str, bool, str] | None = None
    waiting: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    slots: list[str] = field(default_factory=list)
    is_open: bool = True

    def take(self, turn: str) -> None:
        self.slot = turn, False, ""
        self.slots.append(turn)

    def leave(self, turn: str, reason: str) -> None:
        self.ended[turn] = reason
        self.waiting.remove(turn)
        self.flags.discard(turn)

    def expire(self) -> None:
        for turn in [each for each in self.waiting if each in self.late]:
            self.leave(turn, "QUEUE_EXPIRED")

    def end(self, reason: str) -> None:
        assert self.slot is not None
        self.ended[self.slot[0]] = reason
        self.slot = None
        self.expire()
        if self.is_open and self.waiting and (reason == "AGENT_ENDED" or self.waiting[0] in self.flags):
            head = self.waiting.pop(0)
            self.flags.discard(head)
            self.take(head)

    def stop(self, reason: str) -> None:
        if self.slot is None:
            return
        if reason == "USER_STOP":
            self.flags.clear()
        turn, begun, stopping = self.slot
        if begun:
            self.slot = turn, True, stopping or reason
        else:
            self.end(reason)

    def start(self, turn: str, if_busy: IfBusy) -> None:
        if not self.is_open or (self.slot and if_busy is IfBusy.REJECT):
            return
        self.expire()
        if self.slot is None:
            self.take(turn)
        elif if_busy is IfBusy.ENQUEUE:
            self.waiting.append(turn)
        else:
            self.waiting.insert(0, turn)
            self.flags.add(turn)
            self.stop("INTERRUPTED")

    def close(self) -> None:
        self.is_open = False
        for turn in list(self.waiting):
            self.leave(turn, "CLOSED")


@dataclass
class History:
    """Does the same to the model and to a session of its own."""

    desk: Desk
    session_id: str
    model: Model = field(default_factory=Model)
    names: itertools.count[int] = field(default_factory=itertools.count)

    async def act(self, action: str, detail: object) -> None:
        model, desk, session_id = self.model, self.desk, self.session_id
        match action, detail:
            case "start", IfBusy() as if_busy:
                turn = f"t{next(self.names)}"
                model.start(turn, if_busy)
                with contextlib.suppress(MoorageError):
                    await desk.turn(turn, session_id, if_busy=if_busy)
            case "begin", _ if model.slot and not model.slot[1] and model.is_open:
                await self.holder().begin()
                model.slot = model.slot[0], True, model.slot[2]
            case "end", str() as how if model.slot and model.slot[1]:
                await self.holder().finish(**ENDINGS[how])
                reasons = {"complete": "AGENT_ENDED", "fail": "AGENT_EXITED", "lose": "EXECUTION_MISSING"}
                model.end(reasons.get(how) or model.slot[2] or "USER_STOP")
            case "stop", bool() as by_name:
                await stop(desk, model.slot[0] if by_name and model.slot else "", session_id)
                model.stop("USER_STOP")
            case _:
                await self.act_on_queue(action, detail)

    async def act_on_queue(self, action: str, detail: object) -> None:
        model, desk, session_id = self.model, self.desk, self.session_id
        match action, detail:
            case "withdraw", int() as place if place < len(model.waiting):
                turn = model.waiting[place]
                await stop(desk, turn, session_id)
                model.leave(turn, "USER_STOP")
            case "run out", int() as place if place < len(model.waiting):
                await run_out(desk, model.waiting[place], session_id)
                model.late.add(model.waiting[place])
            case "expire", _:
                await expire(desk, session_id)
                model.expire()
            case "close", _:
                await close(desk, session_id)
                model.close()

    def holder(self) -> Holder:
        assert self.model.slot is not None
        turn = self.model.slot[0]
        return self.desk.holder(self.session_id, turn_id=turn, attempt_id=f"a_{turn}")

    async def check(self, database_url: str) -> None:
        model = self.model
        rows = await fetch(
            database_url,
            """
            SELECT turn_id, state, end_reason, stop_end_reason, previous_turn_id, admit_time
            FROM session.turns WHERE session_id = $1
            """,
            self.session_id,
        )
        turns = {row["turn_id"]: row for row in rows}
        assert {name: row["end_reason"] for name, row in turns.items() if row["end_reason"]} == model.ended
        flagged = [f"{turn}{'!' * (turn in model.flags)}" for turn in model.waiting]
        assert await queue(self.desk, self.session_id) == flagged
        busy = [
            (name, row["state"] == "RUNNING", row["stop_end_reason"] or "")
            for name, row in turns.items()
            if row["state"] in ("ADMITTED", "RUNNING")
        ]
        assert busy == ([model.slot] if model.slot else [])
        assert {name for name, row in turns.items() if row["admit_time"]} == set(model.slots)
        before = ["", *model.slots]
        assert [turns[turn]["previous_turn_id"] for turn in model.slots] == before[:-1]

    async def check_story(self) -> None:
        """Each turn's records tell what it went through, in the order of the slot, without a gap."""
        records = [(record.turn_id, record.kind) for record in await self.desk.transcript(self.session_id)]
        assert [turn for turn, kind in records if kind == "user_message"] == self.model.slots
        for turn in {turn for turn, _ in records} | set(self.model.ended):
            kinds = [kind for name, kind in records if name == turn]
            assert kinds.count("turn_ended") == (turn in self.model.ended)
            assert (kinds[-1] == "turn_ended") == (turn in self.model.ended)
            assert (kinds[0] == "user_message") == (turn in self.model.slots)


_sessions = itertools.count()


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(st.lists(ACTIONS, min_size=4, max_size=24))
async def test_slot_and_queue_follow_their_rules(
    desk: Desk, database_url: str, actions: list[tuple[str, object]]
) -> None:
    history = History(desk, f"s{next(_sessions)}")
    await desk.session(history.session_id)
    for action, detail in actions:
        await history.act(action, detail)
        await history.check(database_url)
    await history.check_story()
