"""BeginTurn and ReportProgress: the first outside effect of a turn, and how far it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.session.v1 import journal_pb2

from services.common.database import Database
from services.common.errors import InvalidArgument, MoorageError
from services.session.bindings import BindingUnresolved
from services.session.turns import EndReason, TurnPhase, TurnState
from tests.databases import execute
from tests.session import samples
from tests.session.desks import PREPARING, Desk, told


async def test_begin_answers_with_all_that_is_needed_to_run(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    answer = await desk.holder().begin()
    assert [block.text.text for block in answer.prompt] == ["hello"]
    assert answer.agent.profile == "demo"
    assert answer.approval_policy == turn_pb2.APPROVAL_POLICY_ALLOW
    assert (answer.limits.max_duration.seconds, answer.limits.max_silence.seconds) == (21600, 900)
    assert answer.limits.max_tool_calls == 7
    assert answer.binding.local.directory == samples.LOCAL.directory
    assert answer.workspace_id == "ws_s1"
    assert (answer.previous_turn_id, answer.native_session_id) == ("", "")
    assert answer.traceparent == samples.TRACEPARENT


async def test_begin_stores_who_runs_the_turn(desk: Desk) -> None:
    await desk.begun(token=7, name="runner/x", attempt_id="try_1")
    turn = await desk.read_turn()
    assert (turn.state, turn.token, turn.attempt_id, turn.runner_id) == (
        TurnState.RUNNING,
        7,
        "try_1",
        "runner/x",
    )
    assert turn.phase is TurnPhase.PREPARING_WORKSPACE
    assert turn.begin_time is not None
    assert turn.phase_deadline is not None
    assert abs(turn.phase_deadline - turn.begin_time - timedelta(seconds=PREPARING)) < timedelta(seconds=1)
    metadata = turn_pb2.RunMetadata.FromString(turn.metadata or b"")
    assert (metadata.runner_id, metadata.token, metadata.profile) == ("runner/x", 7, "demo")
    assert metadata.trace_id == samples.TRACEPARENT[3:35]
    _, started = await desk.transcript()
    assert started.record_id == "t1/turn_started"
    body = record_pb2.RecordBody.FromString(started.body).turn_started
    assert (body.runner_id, body.token, body.attempt_id) == ("runner/x", 7, "try_1")


async def test_the_same_attempt_is_answered_as_the_first_time(desk: Desk, database_url: str) -> None:
    await desk.session()
    await desk.turn()
    first = await desk.holder().begin()
    await execute(database_url, "UPDATE session.sessions SET approval_policy = 'DENY', limits = ''")
    assert await desk.holder().begin() == first
    assert len(await desk.transcript()) == 2


async def test_another_attempt_is_refused(desk: Desk) -> None:
    holder = await desk.begun()
    other = replace(holder, attempt_id="a2")
    for call in (other.begin(), other.report(prompt_sent=True), other.finish()):
        with pytest.raises(MoorageError) as refusal:
            await call
        assert refusal.value.reason_name == "TURN_ALREADY_BEGUN"
        assert refusal.value.metadata["attempt_id"] == "a1"
    assert await other.append(1) == ["TURN_ALREADY_BEGUN"]


async def test_an_ended_turn_is_not_begun_again_even_by_its_own_attempt(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.finish()
    with pytest.raises(MoorageError) as refusal:
        await holder.begin()
    assert refusal.value.reason_name == "TURN_ENDED"
    assert (refusal.value.metadata["state"], refusal.value.metadata["end_reason"]) == (
        "COMPLETED",
        "AGENT_ENDED",
    )


async def test_the_next_turn_knows_the_native_session_of_the_last_one_that_had_one(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.report(observation=journal_pb2.RunObservation(native_session_id="native_1"))
    await holder.finish()
    for turn_id in ("t2", "t3"):
        await desk.turn(turn_id)
        answer = await replace(holder, turn_id=turn_id).begin()
        assert answer.native_session_id == "native_1"
        assert answer.previous_turn_id == {"t2": "t1", "t3": "t2"}[turn_id]
        await replace(holder, turn_id=turn_id).finish()


async def test_a_token_that_is_about_to_be_taken_over_begins_no_more_turns(
    desk: Desk, database_url: str
) -> None:
    holder = await desk.begun(token=7)
    await execute(database_url, "UPDATE session.sessions SET begin_above = 7")
    # What it has begun goes on, and was begun for a repeated call as well.
    await holder.begin()
    await holder.append(1)
    await holder.finish(last_turn_seq=1)
    await desk.turn("t2")
    with pytest.raises(MoorageError) as refusal:
        await replace(holder, turn_id="t2").begin()
    assert (refusal.value.reason_name, refusal.value.metadata["highest"]) == ("STALE_OWNER", "7")
    assert (await desk.read_turn("t2")).state is TurnState.ADMITTED
    await desk.holder(token=8, turn_id="t2").begin()
    assert (await desk.read_turn("t2")).token == 8


async def test_a_turn_whose_binding_became_unreadable_ends_clearly(desk: Desk, database_url: str) -> None:
    await desk.session()
    await desk.turn()
    await execute(database_url, "UPDATE session.sessions SET binding_kind = 'orbital'")
    with pytest.raises(MoorageError) as refusal:
        await desk.holder().begin()
    assert refusal.value.reason == BindingUnresolved.reason
    turn = await desk.read_turn()
    assert (turn.state, turn.end_reason) == (TurnState.FAILED, EndReason.BINDING_UNRESOLVED)
    assert [record.kind for record in await desk.transcript()] == ["user_message", "error", "turn_ended"]


async def test_progress_only_goes_forward(desk: Desk) -> None:
    holder = await desk.begun()
    starting = turn_pb2.TURN_PHASE_STARTING_AGENT
    answer = await holder.report(
        phase=starting, waiting_reason="starting demo", phase_timeout=Duration(seconds=60)
    )
    assert answer.phase == starting
    turn = await desk.read_turn()
    assert (turn.phase, turn.waiting_reason) == (TurnPhase.STARTING_AGENT, "starting demo")
    answer = await holder.report(phase=turn_pb2.TURN_PHASE_PREPARING_WORKSPACE, waiting_reason="late")
    assert answer.phase == starting
    assert await desk.read_turn() == turn


async def test_a_phase_told_again_has_a_new_reason_and_deadline(desk: Desk) -> None:
    holder = await desk.begun()
    phase = turn_pb2.TURN_PHASE_LOADING_SESSION
    await holder.report(phase=phase, waiting_reason="one", phase_timeout=Duration(seconds=10))
    first = await desk.read_turn()
    await holder.report(phase=phase, waiting_reason="two", phase_timeout=Duration(seconds=1000))
    second = await desk.read_turn()
    assert second.waiting_reason == "two"
    assert first.phase_deadline is not None
    assert second.phase_deadline is not None
    assert second.phase_deadline - first.phase_deadline > timedelta(seconds=900)
    await holder.report(phase=turn_pb2.TURN_PHASE_PROMPTED)
    last = await desk.read_turn()
    assert (last.phase, last.waiting_reason, last.phase_deadline) == (TurnPhase.PROMPTED, "", None)


async def test_the_deadline_is_counted_by_the_database(desk: Desk, database: Database) -> None:
    holder = await desk.begun()
    await holder.report(phase=turn_pb2.TURN_PHASE_STARTING_AGENT, phase_timeout=Duration(nanos=500_000_000))
    async with database.connection() as connection:
        left = await connection.fetchval("SELECT phase_deadline - clock_timestamp() FROM session.turns")
    assert timedelta(0) < left <= timedelta(seconds=0.5)


async def test_without_a_phase_only_the_rest_is_stored(desk: Desk) -> None:
    holder = await desk.begun()
    before = await desk.read_turn()
    answer = await holder.report(prompt_sent=True, waiting_reason="not stored")
    assert answer.phase == turn_pb2.TURN_PHASE_PREPARING_WORKSPACE
    after = await desk.read_turn()
    assert after == replace(before, prompt_sent=True)


async def test_a_sent_prompt_is_never_taken_back(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.report(prompt_sent=True)
    await holder.report(phase=turn_pb2.TURN_PHASE_PROMPTED)
    assert (await desk.read_turn()).prompt_sent


async def test_what_is_learnt_adds_up_in_the_metadata(desk: Desk, database_url: str) -> None:
    holder = await desk.begun()
    await holder.report(observation=journal_pb2.RunObservation(agent="demo 1.0", native_session_id="n1"))
    await execute(database_url, "UPDATE session.sessions SET approval_policy = 'DENY', limits = ''")
    await holder.report(
        observation=journal_pb2.RunObservation(
            model="m", resume_kind=turn_pb2.RESUME_KIND_FRESH, resume_reason="first turn"
        )
    )
    turn = await desk.read_turn()
    assert turn.native_session_id == "n1"
    metadata = turn_pb2.RunMetadata.FromString(turn.metadata or b"")
    assert (metadata.agent, metadata.model, metadata.resume_reason) == ("demo 1.0", "m", "first turn")
    assert metadata.resume_kind == turn_pb2.RESUME_KIND_FRESH
    # What was changed for later turns is not what this one runs under.
    assert metadata.approval_policy == turn_pb2.APPROVAL_POLICY_ALLOW
    assert metadata.limits.max_tool_calls == 7


async def test_progress_needs_a_begun_turn(desk: Desk) -> None:
    await desk.session()
    await desk.turn()
    with pytest.raises(MoorageError) as refusal:
        await desk.holder().report(prompt_sent=True)
    assert refusal.value.reason_name == "TURN_NOT_BEGUN"
    assert not (await desk.read_turn()).prompt_sent


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("phase_timeout", {"phase_timeout": Duration(seconds=0)}),
        ("phase_timeout", {"phase_timeout": Duration(seconds=-5)}),
        ("phase_timeout", {"phase_timeout": Duration(seconds=10**10)}),
        ("phase", {"phase": 99}),
        ("observation.resume_kind", {"observation": journal_pb2.RunObservation(resume_kind=99)}),  # type: ignore[arg-type]
        ("waiting_reason", {"waiting_reason": "x" * 5000}),
        ("waiting_reason", {"waiting_reason": "x\0"}),
        (
            "observation.native_session_id",
            {"observation": journal_pb2.RunObservation(native_session_id="\0")},
        ),
    ],
)
async def test_bad_progress_names_the_field(desk: Desk, field: str, fields: dict[str, object]) -> None:
    holder = await desk.begun()
    before = await desk.read_turn()
    with pytest.raises(InvalidArgument) as refusal:
        await holder.report(**fields)
    assert [violation.field for violation in refusal.value.violations] == [field]
    assert await desk.read_turn() == before


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("project", {"project": "No Project"}),
        ("session_id", {"session_id": "a/b"}),
        ("turn_id", {"turn_id": ""}),
        ("attempt_id", {"attempt_id": "x" * 129}),
    ],
)
async def test_malformed_names_are_refused(desk: Desk, field: str, changes: dict[str, str]) -> None:
    request = journal_pb2.BeginTurnRequest(**{**desk.holder().names, **changes})
    with pytest.raises(MoorageError) as refusal:
        await told(desk.holder().stub.BeginTurn(request))
    assert refusal.value.reason_name == "INVALID_FIELD"
    assert [violation.field for violation in refusal.value.violations] == [field]
