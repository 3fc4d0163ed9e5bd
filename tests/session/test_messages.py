"""The view MESSAGES: whatever the pages, the same whole messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.common.v1 import content_pb2, record_pb2
from moorage.session.v1 import session_pb2

from services.session.messages import MAX_MESSAGE, ReadPage, merge, read_messages
from services.session.records import Record, RecordPage, kind_of
from services.session.servicers.watch import WatchMethods
from services.session.store.rows import PAGE_BYTES
from tests.session.desks import Desk, append
from tests.session.samples import TIME
from tests.session.watches import running

ROOM = 700_000


def piece(text: str, message_id: str = "m1", kind: str = "agent_message") -> record_pb2.RecordBody:
    content = content_pb2.ContentBlock(text=content_pb2.TextContent(text=text))
    if kind == "thought":
        return record_pb2.RecordBody(thought=record_pb2.Thought(message_id=message_id, content=content))
    return record_pb2.RecordBody(
        agent_message=record_pb2.AgentMessage(message_id=message_id, content=content)
    )


def image(message_id: str = "m1") -> record_pb2.RecordBody:
    block = content_pb2.ContentBlock(image=content_pb2.ImageContent(mime_type="image/png", data=b"1"))
    return record_pb2.RecordBody(agent_message=record_pb2.AgentMessage(message_id=message_id, content=block))


def plan() -> record_pb2.RecordBody:
    return record_pb2.RecordBody(plan=record_pb2.Plan(entries=[record_pb2.PlanEntry(content="steer")]))


def transcript(bodies: Sequence[record_pb2.RecordBody], turn_ids: Sequence[str] = ()) -> list[Record]:
    return [
        Record(
            session_id="s1",
            seq=seq,
            turn_id=turn_ids[seq - 1] if turn_ids else "t1",
            turn_seq=seq,
            record_id="",
            kind=str(kind_of(body)),
            body=body.SerializeToString(deterministic=True),
            create_time=TIME,
        )
        for seq, body in enumerate(bodies, start=1)
    ]


def text_of(record: Record) -> str:
    body = record_pb2.RecordBody.FromString(record.body)
    return body.agent_message.content.text.text or body.thought.content.text.text


def pages_of(records: Sequence[Record], size: int) -> ReadPage:
    """The transcript in pages of so many pieces."""

    async def read(after_seq: int) -> RecordPage:
        later = [record for record in records if record.seq > after_seq]
        return RecordPage(tuple(later[:size]), len(records))

    return read


async def all_pages(records: Sequence[Record], sizes: Sequence[int], raw: int) -> list[Record]:
    """The whole transcript, read with page sizes that change from page to page."""
    found: list[Record] = []
    for number in range(len(records) + 1):
        after_seq = found[-1].seq if found else 0
        limit = sizes[number % len(sizes)]
        page = await read_messages(pages_of(records, raw), after_seq, limit=limit, size=ROOM)
        assert len(page.records) <= limit
        assert page.head_seq == len(records)
        if not page.records:
            return found
        found.extend(page.records)
    raise AssertionError("the pages do not end")


BODIES = st.one_of(
    st.builds(
        piece,
        st.sampled_from(["a", "bc", "x" * 100_000, "y" * (MAX_MESSAGE - 10)]),
        st.sampled_from(["", "m1", "m1", "m2"]),
        st.sampled_from(["agent_message", "agent_message", "thought"]),
    ),
    st.just(image()),
    st.just(plan()),
)


@settings(deadline=None)
@given(
    bodies=st.lists(BODIES, max_size=25),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    raw=st.integers(1, 9),
    turns=st.integers(1, 25),
)
async def test_whatever_the_pages_the_same_records_come_out(
    bodies: list[record_pb2.RecordBody], sizes: list[int], raw: int, turns: int
) -> None:
    records = transcript(bodies, [f"t{seq // turns}" for seq in range(len(bodies))])
    assert await all_pages(records, sizes, raw) == merge(records)


@settings(deadline=None)
@given(bodies=st.lists(BODIES, max_size=25))
def test_nothing_is_lost_moved_or_put_together_wrongly(bodies: list[record_pb2.RecordBody]) -> None:
    records = transcript(bodies)
    merged = merge(records)
    assert "".join(map(text_of, merged)) == "".join(map(text_of, records))
    seqs = [record.seq for record in merged]
    assert seqs == sorted(set(seqs)) and set(seqs) <= {record.seq for record in records}
    assert seqs[-1:] == [record.seq for record in records][-1:]
    for record in merged:
        assert len(record.body) <= MAX_MESSAGE or record in records


def test_pieces_that_stand_next_to_each_other_become_one() -> None:
    bodies = [
        *(piece("He"), piece("llo"), piece("!")),
        *(piece("hm", "m2", "thought"), piece("m", "m2", "thought")),
        plan(),
        *(piece("again"), image(), piece("a"), piece("b")),
        *(piece("c", "m3"), piece("no id", ""), piece("none", "")),
    ]
    merged = merge(transcript(bodies))
    assert [(record.seq, text_of(record)) for record in merged] == [
        *((3, "Hello!"), (5, "hmm"), (6, ""), (7, "again"), (8, ""), (10, "ab")),
        *((11, "c"), (12, "no id"), (13, "none")),
    ]


def test_a_long_message_comes_in_parts() -> None:
    merged = merge(transcript([piece("z" * 10_000) for _ in range(100)]))
    assert [record.seq for record in merged] == [26, 52, 78, 100]
    assert sum(len(text_of(record)) for record in merged) == 1_000_000


async def listed(desk: Desk, view: session_pb2.RecordView.ValueType, size: int) -> list[record_pb2.Record]:
    """The whole transcript in pages of `size`."""
    found: list[record_pb2.Record] = []
    async with running(desk.database) as watching:
        methods = WatchMethods(watching, desk.records)
        request = session_pb2.ListRecordsRequest(session_id="s1", view=view, page_size=size)
        while (page := await methods.list_records("default", request)).records:
            assert sum(record.body.ByteSize() for record in page.records) <= PAGE_BYTES
            assert page.next_after_seq == page.records[-1].seq
            found.extend(page.records)
            request.after_seq = page.next_after_seq
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_both_views_of_a_stored_transcript(desk: Desk, size: int) -> None:
    holder = await desk.begun()
    bodies = [piece("one "), piece("two"), plan(), *(piece("q" * 4096, "m2") for _ in range(600))]
    items = [holder.item(number, body=body) for number, body in enumerate(bodies, 1)]
    await append(desk, items[:300])
    await append(desk, items[300:])
    whole = await listed(desk, session_pb2.RECORD_VIEW_MESSAGES, size)
    assert [record.seq for record in whole[:4]] == [1, 2, 4, 5]
    assert whole[2].body == piece("one two")
    long_text = "".join(record.body.agent_message.content.text.text for record in whole[4:])
    assert long_text == "q" * 4096 * 600
    assert whole[-1].seq == 605
    assert [record.turn_seq for record in whole[2:4]] == [2, 3]
    chunks = await listed(desk, session_pb2.RECORD_VIEW_CHUNKS, 1000)
    assert [record.seq for record in chunks] == list(range(1, 606))
