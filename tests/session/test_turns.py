"""StartTurn, RunTurn, GetTurn and ListTurns, with turns begun and ended through the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
)
from services.session.server import SessionReplica
from tests.databases import execute
from tests.session.clients import Client
from tests.session.holders import Holder
from tests.session.places import Places, running_session
from tests.session.tables import counts


@pytest.fixture
async def holder(client: Client, places: Places, replica: SessionReplica) -> AsyncIterator[Holder]:
    """Holds the session s1, which is made first."""
    await client.create(session_id="s1", wait_ready=True)
    async with open_channel(places.owner_address) as owner, open_channel(replica.journal_endpoint) as journal:
        yield await Holder.acquire(owner, journal, "s1")


async def test_a_turn_is_admitted(client: Client) -> None:
    await client.create(session_id="s1")
    turn = await client.start("s1", "count to 3")
    assert turn.turn_id.startswith("turn_")
    assert (turn.session_id, turn.state) == ("s1", turn_pb2.TURN_STATE_ADMITTED)
    assert turn.phase == turn_pb2.TURN_PHASE_WAITING_FOR_RUNNER
    assert [block.text.text for block in turn.prompt] == ["count to 3"]
    assert (turn.first_seq, turn.last_seq, turn.prompt_sent) == (1, 0, False)
    assert not turn.HasField("metadata")
    again = await client.get_turn("s1", turn.turn_id)
    # The dispatch goes on meanwhile, and tells what it waits for.
    again.waiting_reason = turn.waiting_reason
    assert again == turn


BAD_INPUT: list[tuple[str, str, dict[str, str]]] = [
    ("prompt[0].text.text", "", {}),
    ("prompt", "x" * 262_145, {}),
    ("turn_id", "hello", {"turn_id": "a b"}),
    ("turn_id", "hello", {"turn_id": "t" * 129}),
    ("request_id", "hello", {"request_id": "r" * 256}),
]


async def test_bad_input_names_its_field_and_leaves_nothing(client: Client, database_url: str) -> None:
    await client.create(session_id="s1")
    before = await counts(database_url)
    for field, prompt, fields in BAD_INPUT:
        with pytest.raises(InvalidArgument) as refusal:
            await client.start("s1", prompt, **fields)
        assert refusal.value.reason == ErrorReason.ERROR_REASON_INVALID_FIELD
        assert [violation.field for violation in refusal.value.violations] == [field]
        with pytest.raises(InvalidArgument):
            await first(client.run("s1", prompt, **fields))
    assert await counts(database_url) == before


async def first(events: AsyncIterator[session_pb2.RunTurnResponse]) -> session_pb2.RunTurnResponse:
    return await anext(events)


async def test_the_largest_prompt_is_told_as_it_was_sent(client: Client) -> None:
    await client.create(session_id="s1")
    prompt = "ü" * 131_072
    turn = await client.start("s1", prompt)
    assert (await client.get_turn("s1", turn.turn_id)).prompt[0].text.text == prompt


async def test_a_busy_session_names_what_is_in_progress(
    client: Client, holder: Holder, database_url: str
) -> None:
    await client.start("s1", turn_id="t1")
    for state, phase in (("ADMITTED", "WAITING_FOR_RUNNER"), ("RUNNING", "PREPARING_WORKSPACE")):
        before = await counts(database_url)
        with pytest.raises(FailedPrecondition) as refusal:
            await client.start("s1", turn_id="t2", request_id="r2")
        assert refusal.value.reason == ErrorReason.ERROR_REASON_TURN_IN_PROGRESS
        expected = {"session_id": "s1", "turn_id": "t1", "state": state, "phase": phase}
        assert refusal.value.metadata == expected
        with pytest.raises(FailedPrecondition):
            await first(client.run("s1", turn_id="t2", request_id="r2"))
        assert await counts(database_url) == before
        if state == "ADMITTED":
            await holder.begin("t1")
    await holder.complete("t1")
    assert (await client.start("s1", turn_id="t2", request_id="r2")).turn_id == "t2"


async def test_a_turn_id_is_used_once(client: Client) -> None:
    await client.create(session_id="s1")
    await client.start("s1", turn_id="t1")
    with pytest.raises(AlreadyExists) as refusal:
        await client.start("s1", turn_id="t1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_TURN_ALREADY_EXISTS
    assert refusal.value.metadata == {"session_id": "s1", "turn_id": "t1"}


async def test_a_repeated_start_tells_the_turn_as_it_is_now(client: Client, holder: Holder) -> None:
    turn = await client.start("s1", request_id="r1")
    await holder.begin(turn.turn_id)
    running = await client.start("s1", request_id="r1")
    assert (running.turn_id, running.state) == (turn.turn_id, turn_pb2.TURN_STATE_RUNNING)
    assert running.metadata.runner_id == "runner/1"
    await holder.complete(turn.turn_id)
    ended = await client.start("s1", request_id="r1")
    assert (ended.turn_id, ended.state) == (turn.turn_id, turn_pb2.TURN_STATE_COMPLETED)
    with pytest.raises(AlreadyExists) as refusal:
        await client.start("s1", "another prompt", request_id="r1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_REQUEST_ID_REUSED


async def test_a_stored_binding_of_unknown_kind_is_refused_and_never_becomes_local(
    client: Client, database_url: str
) -> None:
    await client.create(session_id="s1")
    await execute(database_url, "UPDATE session.sessions SET binding_kind = 'orbital'")
    before = await counts(database_url)
    with pytest.raises(FailedPrecondition) as refusal:
        await client.start("s1", request_id="r1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_BINDING_UNRESOLVED
    assert refusal.value.metadata["field"] == "binding"
    assert refusal.value.metadata["kind"] == "orbital"
    assert await counts(database_url) == before


async def test_a_turn_that_does_not_exist(client: Client) -> None:
    await client.create(session_id="s1")
    with pytest.raises(NotFound) as refusal:
        await client.get_turn("s1", "t1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_TURN_NOT_FOUND
    assert refusal.value.metadata == {"session_id": "s1", "turn_id": "t1"}


async def test_turns_are_listed_newest_first_in_pages_that_clients_can_receive(
    client: Client, holder: Holder
) -> None:
    for n in range(12):
        await client.start("s1", "x" * 200_000, turn_id=f"t{n}")
        await holder.begin(f"t{n}")
        await holder.complete(f"t{n}")
    listed: list[str] = []
    token, pages = "", 0
    while True:
        page = await client.list_turns("s1", page_size=1000, page_token=token)
        assert page.ByteSize() < 2 * 1024 * 1024
        listed, pages = [*listed, *(turn.turn_id for turn in page.turns)], pages + 1
        if not (token := page.next_page_token):
            break
    assert listed == [f"t{n}" for n in reversed(range(12))]
    assert pages > 1
    short = await client.list_turns("s1", page_size=5)
    assert [turn.turn_id for turn in short.turns] == listed[:5]
    with pytest.raises(InvalidArgument):
        await client.list_turns("s2", page_token=short.next_page_token)


async def test_a_turn_is_run_as_one_stream(client: Client, holder: Holder) -> None:
    events = client.run("s1", turn_id="t1")
    admitted = (await anext(events)).admitted
    assert (admitted.turn_id, admitted.state) == ("t1", turn_pb2.TURN_STATE_ADMITTED)
    await holder.begin("t1")
    await holder.say("t1", "one", "two")
    await holder.complete("t1", last_turn_seq=2)
    rest = [event async for event in events]
    kinds = [event.record.body.WhichOneof("body") for event in rest[:-1]]
    assert kinds == ["user_message", "turn_started", "agent_message", "agent_message", "turn_ended"]
    assert [event.record.seq for event in rest[:-1]] == [1, 2, 3, 4, 5]
    ended = rest[-1].ended
    assert (ended.state, ended.last_seq) == (turn_pb2.TURN_STATE_COMPLETED, 5)


async def test_the_same_request_id_attaches_again(client: Client, holder: Holder) -> None:
    cut = client.run("s1", request_id="r1")
    turn = (await anext(cut)).admitted
    seen = (await anext(cut)).record.seq
    await cut.aclose()
    # The turn does not depend on the stream.
    await holder.begin(turn.turn_id)
    again = client.run("s1", request_id="r1", after_seq=seen)
    attached = (await anext(again)).admitted
    assert (attached.turn_id, attached.state) == (turn.turn_id, turn_pb2.TURN_STATE_RUNNING)
    await holder.say(turn.turn_id, "one")
    await holder.complete(turn.turn_id, last_turn_seq=1)
    seqs = [event.record.seq async for event in again if event.HasField("record")]
    assert seqs == [2, 3, 4]
    # Also after the end: the whole turn once more, from its first record.
    replayed = [event async for event in client.run("s1", request_id="r1")]
    assert replayed[0].admitted.state == turn_pb2.TURN_STATE_COMPLETED
    assert [event.record.seq for event in replayed[1:-1]] == [1, 2, 3, 4]
    assert replayed[-1].ended == replayed[0].admitted


async def test_only_the_turns_own_records_are_streamed(client: Client, holder: Holder) -> None:
    for turn_id in ("t1", "t2"):
        events = client.run("s1", turn_id=turn_id)
        await anext(events)
        await holder.begin(turn_id)
        await holder.complete(turn_id)
        records = [event.record async for event in events if event.HasField("record")]
        assert {record.turn_id for record in records} == {turn_id}
        assert len(records) == 3


async def test_a_cursor_beyond_the_last_record_is_refused_before_a_turn_is_admitted(
    client: Client, database_url: str
) -> None:
    await client.create(session_id="s1")
    before = await counts(database_url)
    with pytest.raises(OutOfRange) as refusal:
        _ = [event async for event in client.run("s1", after_seq=99)]
    assert refusal.value.reason == ErrorReason.ERROR_REASON_CURSOR_OUT_OF_RANGE
    with pytest.raises(InvalidArgument) as negative:
        await first(client.run("s1", after_seq=-1))
    assert [violation.field for violation in negative.value.violations] == ["after_seq"]
    assert await counts(database_url) == before


async def test_a_turn_of_another_project_is_not_found(client: Client, channel: grpc.aio.Channel) -> None:
    await client.create(session_id="s1")
    await client.start("s1", turn_id="t1")
    with pytest.raises(NotFound) as refusal:
        await Client(channel, "other").get_turn("s1", "t1")
    assert refusal.value.reason == ErrorReason.ERROR_REASON_SESSION_NOT_FOUND


async def test_a_turn_that_no_runner_takes_fails(places: Places) -> None:
    async with (
        running_session(places, dispatch_window=0.5) as replica,
        open_channel(replica.endpoint) as channel,
    ):
        client = Client(channel)
        await client.create(session_id="s1")
        events = [event async for event in client.run("s1")]
        assert events[-1].ended.state == turn_pb2.TURN_STATE_FAILED
        assert events[-1].ended.end_reason == turn_pb2.END_REASON_NO_RUNNER
        assert (await client.start("s1")).state == turn_pb2.TURN_STATE_ADMITTED
