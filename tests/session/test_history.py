"""ListHistory: the newest of what was said before a turn, bounded, for its holder only (T7, F4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.common.v1 import content_pb2, record_pb2, turn_pb2
from moorage.session.v1 import journal_pb2

from services.common.errors import InvalidArgument, MoorageError
from services.session.history import MOST_BYTES, History
from services.session.records import Record, RecordKind, kind_of
from tests.session.desks import Desk, Holder, append, told
from tests.session.samples import TIME


def said(text: str, message_id: str = "m1") -> record_pb2.RecordBody:
    content = content_pb2.ContentBlock(text=content_pb2.TextContent(text=text))
    return record_pb2.RecordBody(
        agent_message=record_pb2.AgentMessage(message_id=message_id, content=content)
    )


def called(tool_call_id: str) -> record_pb2.RecordBody:
    return record_pb2.RecordBody(tool_call=record_pb2.ToolCall(tool_call_id=tool_call_id))


NOISE = [
    record_pb2.RecordBody(usage=record_pb2.Usage(usage=turn_pb2.TokenUsage(input_tokens=7))),
    record_pb2.RecordBody(raw_json=record_pb2.RawJson(method="session/update", json="{}")),
]


async def tell(holder: Holder, *bodies: record_pb2.RecordBody) -> None:
    """Begin the turn, tell this, and end it."""
    await holder.begin()
    for start in range(0, len(bodies), 100):
        batch = enumerate(bodies[start : start + 100], start + 1)
        await append(holder.desk, [holder.item(number, body=body) for number, body in batch])
    await holder.finish(last_turn_seq=len(bodies))


async def past(desk: Desk, *turns: list[record_pb2.RecordBody], session_id: str = "s1") -> Holder:
    """A session with these turns t1, t2, …; the holder of the begun one after them."""
    await desk.session(session_id)
    for number, bodies in enumerate(turns, 1):
        await desk.turn(f"t{number}", session_id)
        await tell(desk.holder(session_id, turn_id=f"t{number}", attempt_id=f"a{number}"), *bodies)
    name = f"t{len(turns) + 1}"
    await desk.turn(name, session_id)
    holder = desk.holder(session_id, turn_id=name, attempt_id=f"a_{name}")
    await holder.begin()
    return holder


async def history(holder: Holder, **fields: Any) -> journal_pb2.ListHistoryResponse:
    request = journal_pb2.ListHistoryRequest(
        grant=holder.grant,
        project=holder.key.project,
        session_id=holder.key.session_id,
        before_turn_id=holder.turn_id,
    )
    request.MergeFrom(journal_pb2.ListHistoryRequest(**fields))
    return await told(holder.stub.ListHistory(request))


def texts(response: journal_pb2.ListHistoryResponse) -> list[tuple[str, str]]:
    """Turn and text of each message of the agent."""
    bodies = [(record.turn_id, record.body) for record in response.records]
    return [
        (turn_id, body.agent_message.content.text.text)
        for turn_id, body in bodies
        if body.HasField("agent_message")
    ]


def kinds(response: journal_pb2.ListHistoryResponse) -> list[str | None]:
    return [record.body.WhichOneof("body") for record in response.records]


def size(response: journal_pb2.ListHistoryResponse) -> int:
    return journal_pb2.ListHistoryResponse(records=response.records).ByteSize()


async def test_what_was_said_is_told_in_order_with_messages_in_one_piece(desk: Desk) -> None:
    holder = await past(
        desk,
        [said("He"), NOISE[0], said("llo"), NOISE[1], called("c1"), said("!", "m2")],
        [said("again")],
    )
    response = await history(holder)
    assert kinds(response) == [
        *("user_message", "agent_message", "tool_call", "agent_message", "turn_ended"),
        *("user_message", "agent_message", "turn_ended"),
    ]
    assert texts(response) == [("t1", "Hello"), ("t1", "!"), ("t2", "again")]
    seqs = [record.seq for record in response.records]
    assert seqs == sorted(seqs)
    assert not response.truncated


async def test_only_what_came_before_the_turn_is_told(desk: Desk) -> None:
    holder = await past(desk, [said("one")], [said("two")], [said("three")])
    assert texts(await history(holder, before_turn_id="t3")) == [("t1", "one"), ("t2", "two")]
    first = await history(holder, before_turn_id="t1")
    assert (list(first.records), first.truncated) == ([], False)


async def test_the_newest_turns_are_whole_and_the_one_that_is_cut_keeps_its_prompt(desk: Desk) -> None:
    turns = [[said(f"{turn}.{number} " + "x" * 1000, f"m{number}") for number in range(10)] for turn in "123"]
    holder = await past(desk, *turns)
    response = await history(holder, max_bytes=18_000)
    assert response.truncated
    assert size(response) <= 18_000
    told_texts = [text.split()[0] for _, text in texts(response)]
    assert told_texts[-10:] == [f"3.{number}" for number in range(10)]
    of_second = [text for text in told_texts if text.startswith("2.")]
    assert of_second == [f"2.{number}" for number in range(10 - len(of_second), 10)]
    assert 0 < len(of_second) < 10
    assert kinds(response)[:2] == ["user_message", "agent_message"]
    assert response.records[0].turn_id == "t2"


async def test_one_long_message_is_told_by_its_end(desk: Desk) -> None:
    holder = await past(desk, [said(f"{number:04} ".ljust(4096, "x")) for number in range(300)])
    for most in (0, 20_000, 400_000, 2**30):
        response = await history(holder, max_bytes=most)
        bound = min(most or 256 * 1024, MOST_BYTES)
        assert bound - 3 * 4200 < size(response) <= bound
        assert kinds(response) == ["user_message", "agent_message", "turn_ended"]
        ((_, text),) = texts(response)
        last = [int(part[:4]) for part in [text[at : at + 4096] for at in range(0, len(text), 4096)]]
        assert last == list(range(300 - len(last), 300))
        assert response.truncated


async def test_what_does_not_fit_at_all_is_left_out(desk: Desk) -> None:
    holder = await past(desk, [said("x" * 3000)])
    response = await history(holder, max_bytes=10)
    assert (list(response.records), response.truncated) == ([], True)
    response = await history(holder, max_bytes=500)
    assert kinds(response) == ["user_message", "turn_ended"]


async def refused(holder: Holder, **fields: Any) -> str:
    with pytest.raises(MoorageError) as refusal:
        await history(holder, **fields)
    return refusal.value.reason_name


async def test_only_the_holder_is_told(desk: Desk) -> None:
    holder = await past(desk, [said("one")], session_id="s1")
    other = await past(desk, [said("two")], session_id="s2")
    assert await refused(holder, before_turn_id="t9") == "TURN_NOT_FOUND"
    assert await refused(desk.holder("s9")) == "SESSION_NOT_FOUND"
    assert await refused(desk.holder(turn_id="t2", lasts=-60.0)) == "LEASE_EXPIRED"
    assert await refused(desk.holder(turn_id="t2", shown=other.grant)) == "WRONG_RESOURCE"
    newer = desk.holder(token=2, turn_id="t2", name="runner/2")
    assert texts(await history(newer)) == [("t1", "one")]
    # A read raises nothing: the older holder goes on until the newer one writes.
    assert texts(await history(holder)) == [("t1", "one")]
    await desk.journal.show(newer.key, newer.grant)
    assert await refused(holder) == "STALE_OWNER"


@pytest.mark.parametrize(
    ("field", "fields"), [("before_turn_id", {"before_turn_id": "a b"}), ("max_bytes", {"max_bytes": -1})]
)
async def test_bad_requests_name_the_field(desk: Desk, field: str, fields: dict[str, Any]) -> None:
    holder = await past(desk)
    with pytest.raises(InvalidArgument) as refusal:
        await history(holder, **fields)
    assert [violation.field for violation in refusal.value.violations] == [field]


BODIES = st.one_of(
    st.builds(said, st.sampled_from(["a", "bc", "x" * 300]), st.sampled_from(["m1", "m2"])),
    st.just(called("c1")),
)


@settings(deadline=None)
@given(
    turns=st.lists(st.lists(BODIES, max_size=8), max_size=4),
    max_bytes=st.integers(1, 4000),
)
def test_the_bound_holds_and_the_newest_is_kept(
    turns: list[list[record_pb2.RecordBody]], max_bytes: int
) -> None:
    records: list[Record] = []
    for number, bodies in enumerate(turns, 1):
        prompt = record_pb2.RecordBody(user_message=record_pb2.UserMessage())
        for body in [prompt, *bodies]:
            name = f"t{number}/user_message" if body is prompt else ""
            records.append(
                Record(
                    "s1",
                    len(records) + 1,
                    f"t{number}",
                    0 if name else len(records) + 1,
                    name,
                    str(kind_of(body)),
                    body.SerializeToString(),
                    TIME,
                )
            )
    kept = History(max_bytes)
    for record in reversed(records):
        if not kept.take(record):
            break
    if kept.truncated:
        (prompt_of_cut,) = [r for r in records if r.record_id == f"{kept.cut_turn_id}/user_message"]
        kept.keep_prompt(prompt_of_cut)
    told_records = kept.records()
    assert sum(len(record.body) + len(record.record_id) + 20 for record in told_records) <= max_bytes or (
        not told_records
    )
    seqs = [record.seq for record in told_records]
    assert seqs == sorted(set(seqs))
    if not kept.truncated:
        text = "".join(map(words, told_records))
        assert text == "".join(map(words, records))
    elif told_records and told_records[-1].kind != RecordKind.USER_MESSAGE:
        assert told_records[-1].seq == records[-1].seq


def words(record: Record) -> str:
    return record_pb2.RecordBody.FromString(record.body).agent_message.content.text.text
