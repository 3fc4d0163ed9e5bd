"""Pages of the transcript, and the session service's own records."""

from __future__ import annotations

import pytest
from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.session.records import CursorOutOfRange, RecordKind, kind_of, record_id
from services.session.servicers.watch import WatchMethods
from services.session.sessions import SessionNotFound
from services.session.store.rows import PAGE_BYTES
from tests.session.desks import Desk, append, message
from tests.session.watches import running


async def list_records(
    desk: Desk, session_id: str = "s1", *, project: str = "default", after_seq: int = 0, page_size: int = 0
) -> session_pb2.ListRecordsResponse:
    async with running(desk.database) as watching:
        request = session_pb2.ListRecordsRequest(
            session_id=session_id, after_seq=after_seq, page_size=page_size
        )
        return await WatchMethods(watching, desk.records).list_records(project, request)


def seqs(response: session_pb2.ListRecordsResponse) -> list[int]:
    return [record.seq for record in response.records]


async def test_pages_follow_each_other(desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(*range(1, 9))
    first = await list_records(desk, page_size=4)
    assert (seqs(first), first.next_after_seq, first.head_seq) == ([1, 2, 3, 4], 4, 10)
    second = await list_records(desk, after_seq=first.next_after_seq, page_size=6)
    assert (seqs(second), second.next_after_seq) == ([5, 6, 7, 8, 9, 10], 10)
    last = await list_records(desk, after_seq=second.next_after_seq)
    assert (seqs(last), last.next_after_seq, last.head_seq) == ([], 10, 10)


async def test_a_record_is_told_whole(desk: Desk) -> None:
    holder = await desk.begun()
    await append(desk, [holder.item(1, "ahoy")])
    user, started, piece = (await list_records(desk)).records
    assert (user.record_id, user.turn_seq, user.turn_id, user.session_id) == (
        "t1/user_message",
        0,
        "t1",
        "s1",
    )
    assert user.body.user_message.content[0].text.text == "hello"
    assert started.record_id == "t1/turn_started"
    assert (piece.record_id, piece.turn_seq, piece.body) == ("", 1, message("ahoy"))
    times = [record.create_time.ToNanoseconds() for record in (user, started, piece)]
    assert times == sorted(times)
    assert times[0] > 0


async def test_a_page_ends_early_at_its_size_but_is_never_empty_for_it(desk: Desk) -> None:
    holder = await desk.begun()
    large, larger = "x" * (400 * 1024), "y" * (1000 * 1024)
    texts = [large, large, large, larger, larger, "small"]
    for number, text in enumerate(texts, 1):
        await append(desk, [holder.item(number, text)])
    pages, after_seq = [], 2
    while (page := await list_records(desk, after_seq=after_seq)).records:
        pages.append([record.turn_seq for record in page.records])
        assert sum(record.body.ByteSize() for record in page.records) <= PAGE_BYTES
        after_seq = page.next_after_seq
    assert pages == [[1, 2], [3], [4], [5, 6]]


async def test_only_what_is_there_is_listed(desk: Desk) -> None:
    await desk.begun()
    for project, session_id in (("default", "unknown"), ("other", "s1")):
        with pytest.raises(SessionNotFound):
            await list_records(desk, session_id, project=project)
    with pytest.raises(CursorOutOfRange) as refusal:
        await list_records(desk, after_seq=3)
    assert refusal.value.metadata == {"session_id": "s1", "after_seq": "3", "head_seq": "2"}


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("session_id", {"session_id": "a b"}),
        ("after_seq", {"after_seq": -1}),
        ("page_size", {"page_size": -1}),
    ],
)
async def test_bad_requests_name_the_field(desk: Desk, field: str, fields: dict[str, object]) -> None:
    await desk.begun()
    with pytest.raises(InvalidArgument) as refusal:
        await list_records(desk, **fields)  # type: ignore[arg-type]
    assert [violation.field for violation in refusal.value.violations] == [field]


def test_every_kind_of_the_contract_has_its_word() -> None:
    (alternatives,) = record_pb2.RecordBody.DESCRIPTOR.oneofs
    assert [field.name for field in alternatives.fields] == [kind.value for kind in RecordKind]
    assert kind_of(record_pb2.RecordBody()) is None
    assert kind_of(message("x")) is RecordKind.AGENT_MESSAGE


def test_own_records_are_named_after_their_turn() -> None:
    assert record_id("t1", RecordKind.TURN_ENDED) == "t1/turn_ended"
