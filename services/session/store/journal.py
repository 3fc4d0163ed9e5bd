"""The holder's writes, each one transaction: lock, fence, judge, store (F4, F5).

What is refused is raised after the commit: a raised token, and the ending of what a lower
one began, stay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.record_pb2 import InteractionOpened
from moorage.common.v1.turn_pb2 import ApprovalPolicy as PolicyMessage
from moorage.common.v1.turn_pb2 import RunMetadata
from moorage.session.v1.journal_pb2 import RunObservation

from services.common.database import Connection
from services.common.errors import InvalidArgument, MoorageError
from services.session.bindings import BindingUnresolved
from services.session.interactions import InteractionState, Question, Settlement
from services.session.journal import endings
from services.session.journal.calls import AppendCall, BeginCall, Begun, FinishCall, OpenCall, ProgressCall
from services.session.journal.locked import JournalTurn
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.limits import LimitDefaults
from services.session.metadata import run_metadata
from services.session.sessions import ApprovalPolicy, Session, check_open
from services.session.store.fence import Fence, Shown
from services.session.store.locking import Journals, read_known
from services.session.store.questions import find_interaction
from services.session.store.running import (
    native_session_id,
    overdue_reason,
    setup_untold,
    store_begin,
    store_observation,
    store_phase,
)
from services.session.store.sessions import read_session
from services.session.store.standing import find_standing
from services.session.store.turns import read_turn
from services.session.store.writing import Writer, require
from services.session.turns import EndReason, Turn, TurnPhase, TurnState

T = TypeVar("T")
Wanted = Mapping[SessionKey, Collection[str]]
Work = Callable[[Connection, Journals], Awaitable[T]]


class JournalStore:
    """Each public method is one transaction."""

    def __init__(
        self,
        writer: Writer,
        fence: Fence,
        *,
        limits: LimitDefaults,
        preparing_timeout: float,
        interaction_timeout: float,
    ) -> None:
        """Seconds: `preparing_timeout` that a begun turn's first phase may last, the other a question."""
        self._writer = writer
        self._fence = fence
        self._limits = limits
        self._preparing = timedelta(seconds=preparing_timeout)
        self._interaction_timeout = timedelta(seconds=interaction_timeout)

    async def begin_turn(self, call: BeginCall) -> Begun:
        """ADMITTED to RUNNING; repeated by the same attempt it is answered as the first time."""
        turn = call.turn
        shown = await self._fence.look(turn.grant, turn.key)
        return await self._write("begin_turn", {turn.key: [turn.turn_id]}, partial(self._begin, call, shown))

    async def report_progress(self, call: ProgressCall) -> TurnPhase:
        """Store what is further than before; returns the stored phase."""
        turn = call.turn
        shown = await self._fence.look(turn.grant, turn.key)
        wanted = {turn.key: [turn.turn_id]}
        return await self._write("report_progress", wanted, partial(self._progress, call, shown))

    async def append(self, calls: Sequence[AppendCall]) -> list[int | MoorageError]:
        """Store records of many sessions; for each its seq, or why it was not stored."""
        shown = [await self._fence.look(call.turn.grant, call.turn.key) for call in calls]
        wanted: dict[SessionKey, set[str]] = {}
        for call in calls:
            wanted.setdefault(call.turn.key, set()).add(call.turn.turn_id)
        return await self._write("append", wanted, partial(self._append_all, calls, shown))

    async def open_interaction(self, call: OpenCall) -> int:
        """Store a question; the seq of its record, stored now or before, 0 when the turn is stopping."""
        turn = call.turn
        shown = await self._fence.look(turn.grant, turn.key)
        wanted = {turn.key: [turn.turn_id]}
        return await self._write("open_interaction", wanted, partial(self._open, call, shown))

    async def finish_turn(self, call: FinishCall) -> None:
        """Settle a turn; repeated by the same attempt it changes nothing."""
        turn = call.turn
        shown = await self._fence.look(turn.grant, turn.key)
        await self._write("finish_turn", {turn.key: [turn.turn_id]}, partial(self._finish, call, shown))

    async def show(self, key: SessionKey, grant: Grant, reason: EndReason | None = None) -> None:
        """Show a token and write nothing else: what a lower one began is LOST, for this reason."""
        shown = await self._fence.look(grant, key)

        async def work(_: Connection, journals: Journals) -> None:
            await self._fence.admit(require(journals, key), shown, reason)

        await self._write("show", {key: []}, work)

    async def give_up(self, key: SessionKey, turn_id: str, window: float) -> bool:
        """End a turn that no runner began within `window` seconds: FAILED / NO_RUNNER.

        It is still ADMITTED, thus the session service's own, and needs no token.
        """
        return await self._write("give_up", {key: [turn_id]}, partial(_give_up, key, turn_id, window))

    async def _write(self, name: str, wanted: Wanted, work: Work[T]) -> T:
        async with self._writer.open(name) as write:
            journals = await write.lock(wanted)
            outcome = await _outcome(work(write.connection, journals))
        if isinstance(outcome, MoorageError):
            raise outcome
        return outcome

    async def _begin(
        self, begin: BeginCall, shown: Shown, connection: Connection, journals: Journals
    ) -> Begun:
        call = begin.turn
        journal = require(journals, call.key)
        turn = journal.turn(call.turn_id)
        claims = await self._fence.admit(journal, shown)
        session = await read_session(connection, *call.key)
        stored = await read_turn(connection, *call.key, call.turn_id)
        if turn.state is TurnState.ADMITTED:
            check_open(session)
            stored = replace(stored, token=claims.token, attempt_id=call.attempt_id, runner_id=claims.holder)
            stored = replace(
                stored,
                prompt_sent=begin.prompt_sent,
                native_session_id=begin.observation.native_session_id,
                observation=begin.observation.SerializeToString(),
                metadata=self._first_metadata(journal, turn, session, stored, begin.observation),
            )
        if journal.begin(call.turn_id, claims.token, call.attempt_id, claims.holder):
            await store_begin(connection, stored, self._preparing)
        native = await native_session_id(connection, stored)
        untold = await setup_untold(connection, session)
        return Begun(session, stored, _metadata_of(stored), native, self._interaction_timeout, untold)

    def _first_metadata(
        self,
        journal: SessionJournal,
        turn: JournalTurn,
        session: Session,
        stored: Turn,
        observation: RunObservation,
    ) -> bytes:
        try:
            return run_metadata(session, stored, observation, self._limits).SerializeToString()
        except BindingUnresolved as refusal:
            journal.abandon(turn, endings.unresolved(str(refusal), **refusal.metadata))
            raise

    async def _progress(
        self, call: ProgressCall, shown: Shown, connection: Connection, journals: Journals
    ) -> TurnPhase:
        key, turn_id = call.turn.key, call.turn.turn_id
        journal = require(journals, key)
        turn = journal.turn(turn_id)
        await self._fence.admit(journal, shown)
        if journal.advance(turn, call.turn.attempt_id, call.phase):
            await store_phase(connection, call)
        if call.prompt_sent or call.observation.ByteSize():
            session = await read_session(connection, *key)
            stored = await read_turn(connection, *key, turn_id)
            await store_observation(connection, self._observed(call, session, stored))
        return turn.phase or TurnPhase.PREPARING_WORKSPACE

    def _observed(self, call: ProgressCall, session: Session, stored: Turn) -> Turn:
        """The turn with what was learnt, under the policy and bounds that it was begun with."""
        observation = RunObservation.FromString(stored.observation)
        if call.phase is TurnPhase.STARTING_AGENT:
            # Whatever was kept, it is not used after all.
            observation.ClearField("resume_kind")
            observation.ClearField("resume_reason")
        observation.MergeFrom(call.observation)
        begun = _metadata_of(stored)
        policy = PolicyMessage.Name(begun.approval_policy).removeprefix("APPROVAL_POLICY_")
        session = replace(
            session, approval_policy=ApprovalPolicy(policy), limits=begun.limits.SerializeToString()
        )
        return replace(
            stored,
            prompt_sent=stored.prompt_sent or call.prompt_sent,
            native_session_id=observation.native_session_id,
            observation=observation.SerializeToString(),
            metadata=run_metadata(session, stored, observation, self._limits).SerializeToString(),
        )

    async def _append_all(
        self,
        calls: Sequence[AppendCall],
        shown: Sequence[Shown],
        connection: Connection,
        journals: Journals,
    ) -> list[int | MoorageError]:
        wanted = [(call.turn.key, call.turn.turn_id, call.append.turn_seq) for call in calls]
        await read_known(connection, journals, wanted)
        return [
            await _outcome(self._append(journals, call, grant))
            for call, grant in zip(calls, shown, strict=True)
        ]

    async def _append(self, journals: Journals, call: AppendCall, shown: Shown) -> int:
        journal = require(journals, call.turn.key)
        journal.turn(call.turn.turn_id)
        await self._fence.admit(journal, shown)
        return journal.append(call.turn.turn_id, call.turn.attempt_id, call.append)

    async def _open(self, call: OpenCall, shown: Shown, connection: Connection, journals: Journals) -> int:
        key, turn_id = call.turn.key, call.turn.turn_id
        journal = require(journals, key)
        journal.turn(turn_id)
        await self._fence.admit(journal, shown)
        await read_known(connection, journals, [(key, turn_id, call.append.turn_seq)])
        await _check_unused(connection, call)
        attempt_id, timeout = call.turn.attempt_id, self._interaction_timeout
        seq = journal.ask(turn_id, attempt_id, call.append, call.question, timeout)
        if journal.opened:
            await _answer_standing(connection, journal, turn_id, call.question)
        return seq

    async def _finish(self, call: FinishCall, shown: Shown, _: Connection, journals: Journals) -> None:
        journal = require(journals, call.turn.key)
        journal.turn(call.turn.turn_id)
        await self._fence.admit(journal, shown)
        journal.finish(call.turn.turn_id, call.turn.attempt_id, call.last_turn_seq, call.ending)


async def _outcome(work: Awaitable[T]) -> T | MoorageError:
    """What the rules say, a refusal as a value, so that the transaction goes on."""
    try:
        return await work
    except MoorageError as refusal:
        return refusal


async def _check_unused(connection: Connection, call: OpenCall) -> None:
    """Refuse a question under the name of another one."""
    stored = await find_interaction(connection, call.turn.key, call.question.interaction_id)
    if stored and (stored.turn_id, stored.turn_seq) != (call.turn.turn_id, call.append.turn_seq):
        raise InvalidArgument.of("interaction.interaction_id", "names another question of the session")


async def _answer_standing(
    connection: Connection, journal: SessionJournal, turn_id: str, question: Question
) -> None:
    """Answer a question that was just stored, if users have answered it once and for all."""
    asked = InteractionOpened.FromString(question.content)
    standing = await find_standing(connection, journal.key, asked)
    option_id = standing.option_of(asked) if standing else None
    if standing is not None and option_id is not None:
        settlement = Settlement(
            question.interaction_id, InteractionState.ANSWERED, standing.standing_answer_id, option_id
        )
        journal.settle(journal.turn(turn_id), settlement)


def _metadata_of(turn: Turn) -> RunMetadata:
    return RunMetadata.FromString(turn.metadata or b"")


async def _give_up(
    key: SessionKey, turn_id: str, window: float, connection: Connection, journals: Journals
) -> bool:
    journal = require(journals, key)
    turn = journal.turn(turn_id)
    waiting_reason = await overdue_reason(connection, key, turn_id, timedelta(seconds=window))
    if waiting_reason is None:
        return False
    journal.abandon(turn, endings.not_begun(window, waiting_reason))
    return True
