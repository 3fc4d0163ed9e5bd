"""Questions that wait: what the agent is told of a decision, and what waiting means for its limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acp import schema
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1.record_pb2 import InteractionOpened, InteractionOption, InteractionOutcome
from moorage.common.v1.turn_pb2 import EndReason, Limits

from services.common.clock import ManualClock
from services.runner.acp.asked import to_question
from services.runner.acp.messages import PermissionRequest
from services.runner.acp.rpc import RequestError
from services.runner.answers import Answers
from services.runner.asking import Asking
from services.runner.endings import TurnFailed, TurnStopped
from services.runner.executions import Executions
from services.runner.interrupts import background
from services.runner.limits import LimitWatch
from services.runner.questions import WAITS_FOR_AGENT, WITHDRAWN, Decision, Question, Questions
from services.runner.records import RecordBuffer
from tests.runner.samples import message

ANSWERED = Decision(InteractionOutcome.INTERACTION_OUTCOME_ANSWERED, "yes")
EXPIRED = Decision(InteractionOutcome.INTERACTION_OUTCOME_EXPIRED)


def question(interaction_id: str = "i1", **options: str) -> Question:
    """Options by their ids, each of the kind that is given."""
    offered = [InteractionOption(option_id=name, kind=kind) for name, kind in options.items()]
    title = f"question {interaction_id}"
    return Question(InteractionOpened(interaction_id=interaction_id, title=title, options=offered))


def request(*option_ids: str) -> PermissionRequest:
    """A permission request of an agent."""
    options = tuple(
        schema.PermissionOption(option_id=each, name=each * 3, kind="allow_once") for each in option_ids
    )
    return PermissionRequest("native", schema.ToolCallUpdate(tool_call_id="call"), options, {})


@pytest.mark.parametrize(
    ("decision", "options", "told"),
    [
        (ANSWERED, {"yes": "allow_once"}, "yes"),
        (ANSWERED, {"yes": "allow_always", "once": "allow_once", "no": "reject_once"}, "once"),
        (ANSWERED, {"yes": "reject_always", "once": "allow_once", "no": "reject_once"}, "no"),
        (ANSWERED, {"yes": "allow_always", "no": "reject_once"}, "yes"),
        (EXPIRED, {"yes": "allow_once", "never": "reject_always", "no": "reject_once"}, "no"),
        (EXPIRED, {"yes": "allow_once", "never": "reject_always"}, None),
        (WITHDRAWN, {"no": "reject_once"}, None),
    ],
)
async def test_what_the_agent_is_told(decision: Decision, options: dict[str, str], told: str | None) -> None:
    asked = question(**options)
    asked.settle(decision)
    asked.settle(Decision(InteractionOutcome.INTERACTION_OUTCOME_ANSWERED, "too late"))
    assert await asked.answer == told


async def test_an_answer_that_nobody_wants_any_more_changes_nothing() -> None:
    questions = Questions(ManualClock())
    asked = question()
    questions.add(asked)
    asked.answer.cancel()
    questions.settle("i1", ANSWERED)
    assert asked.answer.cancelled()
    await asyncio.sleep(0)
    assert questions.waiting_reason == WAITS_FOR_AGENT


async def test_an_agent_that_waits_for_an_answer_is_not_silent() -> None:
    clock = ManualClock()
    questions = Questions(clock)
    exceeded: list[TurnFailed] = []
    limits = LimitWatch(Limits(max_silence=Duration(seconds=10)), clock, exceeded.append)
    asked = [question("i1"), question("i2")]
    for each in asked:
        questions.add(each)
    watching = asyncio.create_task(limits.watch_silence(Mute(clock), questions))
    for each in asked:
        await clock.until_sleeping()
        await clock.advance(100)
        questions.settle(each.opened.interaction_id, ANSWERED)
        await each.answer
    assert not exceeded
    await clock.until_sleeping()
    await clock.advance(9.9)
    assert not exceeded
    await clock.advance(0.2)
    await watching
    assert [failure.reason for failure in exceeded] == [EndReason.END_REASON_MAX_SILENCE]


class Mute:
    """An agent that never says anything."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._since = clock.boottime()

    @property
    def silence(self) -> float:
        return self._clock.boottime() - self._since


async def test_a_turn_that_is_to_end_takes_no_answers() -> None:
    executions = Executions(ManualClock(), capacity=1)
    execution = executions.register("p", "s", "t", "")
    first, second = question("i1"), question("i2")
    for each in (first, second):
        execution.questions.add(each)
    answers = Answers(executions)
    assert answers.deliver("p", "s", "t", "i1", ANSWERED)
    execution.work.interrupt(TurnStopped(EndReason.END_REASON_USER_STOP))
    assert answers.deliver("p", "s", "t", "i2", ANSWERED)
    assert (await first.answer, await second.answer) == ("yes", None)


async def test_while_a_turn_is_to_end_no_question_opens() -> None:
    execution = Executions(ManualClock(), capacity=1).register("p", "s", "t", "")
    records = RecordBuffer(lambda: None)
    no_journal: Any = None
    asking = Asking(no_journal, records, execution)
    unstored = await asking.ask(question("i1").opened)
    await records.add(message("behind it"))
    execution.work.interrupt(TurnStopped(EndReason.END_REASON_USER_STOP))
    late = await asking.ask(question("i2").opened)
    assert (late.answer.done(), late.answer.result()) == (True, None)
    async with background(asking.store()):
        assert await unstored.answer is None
    assert [record.turn_seq for record in iter(records.take, None)] == [1]
    assert records.last_turn_seq == 1


def test_a_question_has_the_agents_options() -> None:
    opened = to_question(request("yes", "no"), "i1", "may I?\0")
    assert (opened.interaction_id, opened.tool_call_id, opened.title) == (
        "i1",
        "call",
        "may I?\N{REPLACEMENT CHARACTER}",
    )
    assert [(each.option_id, each.name, each.kind) for each in opened.options] == [
        ("yes", "yesyesyes", "allow_once"),
        ("no", "nonono", "allow_once"),
    ]


def test_the_largest_question_that_can_be_asked_fits_into_what_is_stored() -> None:
    asked = request(*(f"{number:02}" + "x" * 1022 for number in range(64)))
    assert to_question(asked, "i" * 128, "t" * 10_000).ByteSize() < 256 * 1024


@pytest.mark.parametrize(
    "option_ids", [(), ("same", "same"), ("",), ("nul\0",), ("x" * 1025,), tuple(map(str, range(65)))]
)
def test_options_that_cannot_be_answered_are_refused(option_ids: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="options: ") as refused:
        to_question(request(*option_ids), "i1", "title")
    assert refused.value.code == -32602
