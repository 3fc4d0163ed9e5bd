"""A turn's records on their way: dense numbers, back-pressure, resending (R1, R2, R3)."""

from __future__ import annotations

import asyncio

import pytest

from services.runner.records import MAX_RECORD_BYTES, RecordBuffer
from tests.runner.samples import message, tool_call


def buffer(**bounds: int) -> RecordBuffer:
    return RecordBuffer(lambda: None, **bounds)


def taken(records: RecordBuffer) -> list[int]:
    numbers = []
    while record := records.take():
        numbers.append(record.turn_seq)
    return numbers


async def test_records_are_numbered_densely_and_each_is_sent_once() -> None:
    records = buffer()
    assert [await records.add(message(str(n))) for n in range(3)] == [1, 2, 3]
    assert taken(records) == [1, 2, 3]
    assert not records.has_unsent


async def test_what_is_not_acknowledged_is_sent_again() -> None:
    records = buffer()
    for n in range(4):
        await records.add(message(str(n)))
    taken(records)
    records.acknowledge(2)
    records.resend()
    assert taken(records) == [3, 4]


async def test_an_acknowledgement_after_a_resend_skips_what_it_covers() -> None:
    records = buffer()
    for n in range(3):
        await records.add(message(str(n)))
    taken(records)
    records.resend()
    assert records.take() is not None
    records.acknowledge(2)
    assert taken(records) == [3]


async def test_a_full_buffer_makes_the_agent_wait_until_something_is_acknowledged() -> None:
    records = buffer(max_records=2)
    await records.add(message("1"))
    await records.add(message("2"))
    third = asyncio.create_task(records.add(message("3")))
    await asyncio.sleep(0)
    assert not third.done()
    assert records.last_turn_seq == 2
    records.acknowledge(1)
    assert await third == 3


async def test_the_bound_in_bytes_holds_and_one_record_always_fits() -> None:
    records = buffer(max_bytes=100)
    await records.add(message("x" * 500))
    second = asyncio.create_task(records.add(message("y")))
    await asyncio.sleep(0)
    assert not second.done()
    records.acknowledge(1)
    assert await second == 2


async def test_flush_returns_when_all_is_acknowledged() -> None:
    records = buffer()
    await records.flush()
    await records.add(message("1"))
    await records.add(message("2"))
    flushing = asyncio.create_task(records.flush())
    records.acknowledge(1)
    await asyncio.sleep(0)
    assert not flushing.done()
    records.acknowledge(2)
    await flushing


async def test_a_final_failure_reaches_whoever_adds_or_flushes() -> None:
    records = buffer(max_records=1)
    await records.add(message("1"))
    waiting = [asyncio.create_task(records.add(message("2"))), asyncio.create_task(records.flush())]
    await asyncio.sleep(0)
    records.fail(KeyError("gone"))
    for task in waiting:
        with pytest.raises(KeyError):
            await task
    with pytest.raises(KeyError):
        await records.add(message("3"))
    assert records.take() is None


async def test_an_oversize_record_becomes_an_error_under_its_number() -> None:
    records = buffer(max_bytes=3 * MAX_RECORD_BYTES)
    await records.add(message("before"))
    await records.add(message("x" * MAX_RECORD_BYTES))
    await records.add(message("after"))
    kept = [records.take(), records.take(), records.take()]
    assert [record.body.WhichOneof("body") for record in kept if record] == [
        "agent_message",
        "error",
        "agent_message",
    ]
    replaced = kept[1]
    assert replaced is not None
    error = replaced.body.error.error
    assert replaced.turn_seq == 2
    assert error.code == "RECORD_TOO_LARGE"
    assert error.metadata["kind"] == "agent_message"
    assert int(error.metadata["bytes"]) > MAX_RECORD_BYTES


async def test_nothing_behind_a_reserved_slot_is_sent_before_it_is_settled() -> None:
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    records = RecordBuffer(changed)
    await records.add(message("1"))
    slot = await records.reserve(message("question"))
    await records.add(message("3"))
    reaching = asyncio.create_task(records.reached(slot))
    assert taken(records) == [1]
    await asyncio.sleep(0)
    assert not reaching.done()
    records.acknowledge(1)
    assert await reaching == 2
    assert not records.has_unsent
    before = changes
    records.settle(slot)
    assert changes > before
    assert taken(records) == [3]


async def test_a_withdrawn_slot_leaves_no_gap() -> None:
    records = buffer()
    first = await records.reserve(message("first question"))
    second = await records.reserve(message("second question"))
    await records.add(message("text"))
    records.withdraw(first)
    assert await records.reached(second) == 1
    records.settle(second)
    assert taken(records) == [2]
    records.acknowledge(2)
    await records.flush()
    assert records.last_turn_seq == 2


async def test_another_record_takes_the_place_of_a_refused_question() -> None:
    records = buffer()
    slot = await records.reserve(message("refused"))
    await records.add(message("next"))
    records.fill(slot, tool_call("instead"))
    kept = [records.take(), records.take()]
    assert [record.turn_seq for record in kept if record] == [1, 2]
    assert kept[0] is not None
    assert kept[0].body.HasField("tool_call")


async def test_flush_waits_for_reserved_slots_and_a_failure_reaches_their_owners() -> None:
    records = buffer()
    await records.add(message("1"))
    slot = await records.reserve(message("question"))
    waiting = [asyncio.create_task(records.flush()), asyncio.create_task(records.reached(slot))]
    records.acknowledge(1)
    assert await waiting[1] == 2
    assert not waiting[0].done()
    records.fail(KeyError("gone"))
    with pytest.raises(KeyError):
        await waiting[0]
    with pytest.raises(KeyError):
        await records.reached(slot)
