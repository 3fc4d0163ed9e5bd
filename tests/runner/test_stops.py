"""Stopping turns: at every moment, by every rung, and what is left of the agent (S7, S8, S9, S11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import StopMethod
from opentelemetry import trace

from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.holding import ACCEPTED, NOT_HELD, delivering, native_in, pid_in
from tests.runner.moments import Moments
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks, kinds_of
from tests.spans import exporter

COMPLETED, STOPPED = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_STOPPED
WARM, ENDED = turn_pb2.RUNTIME_AFTER_WARM, turn_pb2.RUNTIME_AFTER_ENDED
# A shell command after which a process lives that has left everything but the agent's descendants.
LEAVES_ONE = "setsid sh -c 'echo $$ > child; exec sleep 600' & until test -s child; do sleep 0.01; done"
# Rungs that are reached soon.
QUICK: dict[str, Any] = {"cancel_timeout": 0.5, "close_timeout": 0.2, "terminate_timeout": 0.5}


async def test_after_a_confirmed_stop_the_same_agent_goes_on_and_remembers(
    stack: Stack, talks: Talks
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.run("s", "one", "remember the lighthouse")
    await talks.start("s", "two", "who are you\nsleep 600")
    before = await talks.says("s", "two", "Sleeping")
    command = await talks.stop("s", "two")
    stopped = await talks.ended("s", "two")
    assert (stopped.state, stopped.end_reason) == (STOPPED, turn_pb2.END_REASON_USER_STOP)
    assert (stopped.stop_reason, stopped.runtime_after) == ("cancelled", WARM)
    ended = (await talks.records("s", "two"))[-1].body.turn_ended
    assert ended.stop_method == StopMethod.STOP_METHOD_AGENT_CONFIRMED
    third = await talks.run("s", "three", "who are you\nrecall")
    after = await talks.said("s", "three")
    assert (pid_in(after), native_in(after)) == (pid_in(before), native_in(before))
    assert "the lighthouse" in after
    assert third.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    assert third.metadata.token == stopped.metadata.token
    assert third.metadata.agent == "moorage-demo 1"
    assert third.metadata.workspace_provider == "local"
    assert command.turn_id == "two"


async def test_what_a_turn_left_running_is_ended_while_the_agent_lives_on(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "t", f"who are you\nrun {LEAVES_ONE}\nsleep 600")
    said = await talks.says("s", "t", "Sleeping")
    child = int((root / "child").read_text())
    assert is_alive(child)
    await talks.stop("s", "t")
    assert (await talks.ended("s", "t")).runtime_after == WARM
    assert not is_alive(child)
    assert is_alive(pid_in(said))
    # A turn that ends by itself leaves nothing either, and costs no agent its life.
    (root / "child").unlink()
    await talks.run("s", "next", f"who are you\nrun {LEAVES_ONE}")
    assert pid_in(await talks.said("s", "next")) == pid_in(said)
    assert not is_alive(int((root / "child").read_text()))


@pytest.mark.parametrize(
    ("words", "method"),
    [("hang", StopMethod.STOP_METHOD_TERMINATED), ("hang hard", StopMethod.STOP_METHOD_KILLED)],
)
async def test_an_agent_that_does_not_listen_is_ended_with_all_it_started(
    stack: Stack, talks: Talks, root: Path, words: str, method: StopMethod.ValueType
) -> None:
    await stack.add_runner(**QUICK)
    await talks.create("s")
    await talks.run("s", "before", "remember the lighthouse")
    await talks.start("s", "t", f"who are you\nrun {LEAVES_ONE}\n{words}")
    said = await talks.says("s", "t", "Hanging")
    child = int((root / "child").read_text())
    assert is_alive(child)
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.runtime_after, turn.stop_reason) == (STOPPED, ENDED, "")
    assert (await talks.records("s", "t"))[-1].body.turn_ended.stop_method == method
    assert not is_alive(pid_in(said))
    assert not is_alive(child)
    again = await talks.run("s", "next", "recall")
    assert again.metadata.resume_kind == turn_pb2.RESUME_KIND_LOADED
    assert "the lighthouse" in await talks.said("s", "next")


@pytest.mark.parametrize("behaviour", ["exits_when_cancelled", "fails_when_cancelled"])
async def test_whatever_an_agent_does_once_it_was_told_the_turn_was_stopped(
    stack: Stack, talks: Talks, tmp_path: Path, behaviour: str
) -> None:
    profile = write_rogue(tmp_path / "profiles", behaviour)
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    await talks.start("s", "t", "go")
    await talks.says("s", "t", "at work")
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.runtime_after) == (STOPPED, ENDED)
    ended = (await talks.records("s", "t"))[-1].body.turn_ended
    assert ended.stop_method == StopMethod.STOP_METHOD_AGENT_EXITED
    assert not ended.HasField("error")


MOMENTS = (
    "runner.begin_turn.after",
    "runner.workspace.before_claim",
    "runner.agent.before_open",
    "runner.session.before_load",
    "runner.prompt.before_send",
)


async def test_a_prompt_that_was_not_sent_is_withdrawn(
    stack: Stack, talks: Talks, moments: Moments, root: Path
) -> None:
    runner = await stack.add_runner(**QUICK)
    for number, name in enumerate(MOMENTS):
        session_id = f"s{number}"
        held = moments.hold(name)
        await talks.create(session_id)
        await talks.start(session_id, "t", "run echo ran > ran")
        await held.reached()
        async with delivering(runner.endpoint) as deliveries:
            assert await deliveries.stop(session_id, "t") == ACCEPTED, name
            assert await deliveries.stop(session_id, "t") == ACCEPTED, name
        held.release()
        turn = await talks.ended(session_id, "t")
        assert (turn.state, turn.end_reason) == (STOPPED, turn_pb2.END_REASON_USER_STOP), name
        records = await talks.records(session_id, "t")
        assert records[-1].body.turn_ended.stop_method == StopMethod.STOP_METHOD_PROMPT_WITHDRAWN, name
        assert kinds_of(records).count("turn_ended") == 1, name
        assert turn.runtime_after == ENDED, name
        await eventually(lambda: not list(runner.executions))
        assert processes_of(stack) == [], name
        moments.forget(name)
    assert not (root / "ran").exists()
    assert (await talks.run("s0", "next", "say goes on")).state == COMPLETED


def processes_of(stack: Stack) -> list[str]:
    """The execs of the workspace."""
    return [each.exec_id for each in stack.workspace.service.instance._execs.all()]


async def test_a_stop_in_a_tool_ends_the_tool_and_one_while_text_comes_keeps_what_came(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "tool", "run echo $$ > tool; exec sleep 600")
    await eventually(lambda: (root / "tool").exists() and bool((root / "tool").read_text()))
    await talks.stop("s", "tool")
    assert (await talks.ended("s", "tool")).runtime_after == WARM
    assert not is_alive(int((root / "tool").read_text()))
    await talks.start("s", "text", "count to 100000 every 0.001")
    await talks.says("s", "text", "\n20\n")
    await talks.stop("s", "text")
    turn = await talks.ended("s", "text")
    assert (turn.state, turn.runtime_after) == (STOPPED, WARM)
    numbers = [int(line) for line in (await talks.said("s", "text")).split()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_stop_that_comes_when_the_turn_has_ended_by_itself_changes_nothing(
    stack: Stack, talks: Talks, moments: Moments
) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    held = moments.hold("runner.finish_turn.before")
    await talks.start("s", "t", "who are you")
    await held.reached()
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.stop("s", "t") == ACCEPTED
        assert await deliveries.stop("s", "other") == NOT_HELD
        assert await deliveries.stop("other", "t") == NOT_HELD
        assert await deliveries.stop("s", "t", project="other") == NOT_HELD
        held.release()
        turn = await talks.ended("s", "t")
        assert (turn.state, turn.runtime_after) == (COMPLETED, WARM)
        await eventually(lambda: not list(runner.executions))
        assert await deliveries.stop("s", "t") == NOT_HELD
    await talks.run("s", "next", "who are you")
    assert pid_in(await talks.said("s", "next")) == pid_in(await talks.said("s", "t"))


async def test_a_stop_of_the_next_turn_before_its_prompt_ends_the_warm_agent(
    stack: Stack, talks: Talks, moments: Moments
) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    await talks.run("s", "one", "who are you\nremember the lighthouse")
    held = moments.hold("runner.workspace.before_claim")
    await talks.start("s", "two", "say never")
    await held.reached()
    async with delivering(runner.endpoint) as deliveries:
        assert await deliveries.stop("s", "two") == ACCEPTED
    turn = await talks.ended("s", "two")
    assert (turn.state, turn.runtime_after) == (STOPPED, ENDED)
    assert not is_alive(pid_in(await talks.said("s", "one")))
    held.release()
    three = await talks.run("s", "three", "recall")
    assert three.metadata.resume_kind == turn_pb2.RESUME_KIND_LOADED
    assert await talks.said("s", "three") == "the lighthouse\n"


async def test_a_stop_is_seen_in_the_trace_that_ordered_it_and_in_the_turns(
    stack: Stack, talks: Talks
) -> None:
    spans = exporter()
    spans.clear()
    runner = await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "t", "sleep 600")
    await talks.says("s", "t", "Sleeping")
    async with delivering(runner.endpoint) as deliveries:
        await deliveries.stop("s", "t", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await talks.ended("s", "t")
    await eventually(lambda: {"stop", "turn"} <= {span.name for span in spans.get_finished_spans()})
    stop, turn = (
        next(span for span in spans.get_finished_spans() if span.name == name) for name in ("stop", "turn")
    )
    assert stop.parent is not None
    assert trace.format_trace_id(stop.parent.trace_id) == "0af7651916cd43dd8448eb211c80319c"
    assert trace.format_span_id(stop.parent.span_id) == "b7ad6b7169203331"
    assert stop.context and turn.context
    assert [link.context.span_id for link in stop.links] == [turn.context.span_id]
    assert stop.context.span_id in [link.context.span_id for link in turn.links]
    (event,) = turn.events
    assert (event.name, dict(event.attributes or {})["moorage.command"]) == ("stop", "c1")
