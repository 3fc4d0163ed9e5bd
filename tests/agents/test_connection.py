"""The connection and agents that misbehave; each is a real process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.runner.acp.errors import (
    AgentAuthRequired,
    AgentExited,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    HandlerFailed,
)
from services.runner.acp.messages import PermissionOutcome, PermissionRequest
from services.runner.acp.transport import TransportLimits
from tests.agents.peers import TIMEOUT, Agent, connected, demo_command, rogue_command, text_blocks
from tests.conditions import eventually


@asynccontextmanager
async def rogue(
    directory: Path, name: str, *arguments: object, limits: TransportLimits | None = None
) -> AsyncIterator[Agent]:
    """A misbehaving agent with its session open."""
    command = rogue_command(name, *map(str, arguments))
    async with connected(*command, directory=directory, limits=limits or TransportLimits()) as agent:
        await agent.open(directory)
        yield agent


async def test_noise_is_passed_over_counted_and_kept(tmp_path: Path) -> None:
    async with rogue(tmp_path, "noise") as agent:
        assert await agent.say("go") == "end_turn"
        assert agent.listener.text() == "onetwo"
        noise = agent.connection.noise
        assert noise.count == 8
        assert list(noise.lines)[:6] == ["42", "null", "[1]", '"text"', "true", "{not json"]
        assert noise.lines[6].endswith("binary\ufffd")
        assert len(noise.lines[7]) == 500


async def test_only_the_last_noise_is_kept(tmp_path: Path) -> None:
    command = ["sh", "-c", "yes noise | head -n 5000; cat"]
    async with connected(*command, directory=tmp_path) as agent:
        await eventually(lambda: agent.connection.noise.count == 5000)
        assert len(agent.connection.noise.lines) == 20


async def test_an_exit_in_the_middle_fails_what_is_pending_after_all_that_was_said(tmp_path: Path) -> None:
    async with rogue(tmp_path, "exits") as agent:
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        with pytest.raises(AgentExited, match="the agent's output ended"):
            await prompt.result
        assert prompt.is_flushed
        assert agent.listener.text() == "last words"
        assert isinstance(await agent.connection.wait_closed(), AgentExited)
        assert not await agent.connection.cancel(agent.session_id)
        await agent.connection.drained()


async def test_an_agent_that_exits_at_once(tmp_path: Path) -> None:
    async with connected(*rogue_command("exits_at_once"), directory=tmp_path) as agent:
        with pytest.raises(AgentExited):
            await agent.connection.initialize(timeout=TIMEOUT)
        with pytest.raises(AgentExited):
            await agent.connection.new_session(str(tmp_path), timeout=TIMEOUT)
        prompt = agent.connection.prompt("any", text_blocks("go"))
        for waited in (prompt.flushed, prompt.result):
            with pytest.raises(AgentExited):
                await waited


async def test_a_silent_end_of_output_fails_the_prompt(tmp_path: Path) -> None:
    async with rogue(tmp_path, "closes") as agent:
        with pytest.raises(AgentExited):
            await agent.say("go")
        assert agent.listener.text() == "before the end"
        assert agent.stream.process.returncode is None


async def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    async with rogue(tmp_path, "answers_without_line_end") as agent:
        assert await agent.say("go") == "end_turn"


async def test_unknown_updates_are_kept_and_unknown_requests_refused(tmp_path: Path) -> None:
    async with rogue(tmp_path, "unknown") as agent:
        assert await agent.say("go") == "end_turn"
        strange, malformed, empty, no_object, told = agent.listener.updates
        assert (strange.kind, strange.model) == ("telepathy", None)
        assert json.loads(strange.raw_json)["update"]["thoughts"] == ["a", {"b": "ü"}]
        assert (malformed.kind, malformed.model) == ("agent_message_chunk", None)
        assert (empty.kind, empty.model) == ("", None)
        assert no_object.raw == {"params": [1, 2]}
        refused = [["q-fs/read_text_file", -32602], ["q-terminal/create", -32602]]
        refused += [["q-_company/question", -32601], ["bad", -32602]]
        assert json.loads(told.raw["update"]["content"]["text"]) == refused
        assert not agent.listener.requests
        assert not agent.listener.served


async def test_what_comes_after_the_end_breaks_nothing(tmp_path: Path) -> None:
    async with rogue(tmp_path, "late") as agent:
        assert await agent.say("go") == "end_turn"
        await agent.listener.until(lambda listener: len(listener.updates) == 3)
        assert [update.in_prompt for update in agent.listener.updates] == [True, False, False]
        cancelled = {"outcome": {"outcome": "cancelled"}}
        assert json.loads(agent.listener.updates[2].raw["update"]["content"]["text"]) == cancelled
        assert not agent.listener.requests
        assert not await agent.connection.cancel(agent.session_id)
        await agent.connection.drained()
        assert agent.connection.backlog == 0


async def test_an_answer_is_taken_in_its_place_between_updates(tmp_path: Path) -> None:
    """What follows the answer in the same write belongs to it no more."""
    async with connected(*rogue_command("answers_within_updates"), directory=tmp_path) as agent:
        await agent.connection.initialize(timeout=TIMEOUT)
        await agent.connection.load_session("rogue", str(tmp_path), timeout=TIMEOUT)
        await agent.connection.prompt("rogue", text_blocks("go")).result
        await agent.listener.until(lambda listener: len(listener.updates) == 4)
        seen = [(update.replayed, update.in_prompt) for update in agent.listener.updates]
        assert seen == [(True, False), (False, False), (False, True), (False, False)]


async def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    async with rogue(tmp_path, "surrogates") as agent:
        assert await agent.say("go") == "end_turn"
        (update,) = agent.listener.updates
        assert agent.listener.text() == "lone \ufffd and \ufffd, pair \U0001f600"
        assert update.raw["update"]["\ufffd"] == [{"\ufffd": 1}]
        update.raw_json.encode()


async def test_lines_of_several_mebibytes_pass(tmp_path: Path) -> None:
    async with rogue(tmp_path, "long_lines", 1, 5, 9) as agent:
        assert await agent.say("go") == "end_turn"
        assert [len(update.raw["update"]["content"]["text"]) for update in agent.listener.updates] == [
            size * 1024 * 1024 for size in (1, 5, 9)
        ]


async def test_a_line_beyond_the_limit_ends_the_connection_clearly(tmp_path: Path) -> None:
    limits = TransportLimits(max_line=2 * 1024 * 1024)
    async with rogue(tmp_path, "long_lines", 1, 3, limits=limits) as agent:
        with pytest.raises(AgentProtocolError, match="a line of more than 2097152 bytes"):
            await agent.say("go")
        assert len(agent.listener.updates) == 1
        assert agent.stream.bytes_read < 3.5 * 1024 * 1024


async def test_a_flood_waits_for_a_slow_listener_and_loses_nothing(tmp_path: Path) -> None:
    limits = TransportLimits(queue_messages=100)
    async with rogue(tmp_path, "flood", 20_000, limits=limits) as agent:
        agent.listener.gate.clear()
        tasks = len(asyncio.all_tasks())
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        # One is with the listener, and the queue is full.
        await eventually(lambda: agent.connection.backlog == 101)
        read = agent.stream.bytes_read
        for _ in range(100):
            await asyncio.sleep(0)
        assert agent.connection.backlog == 101
        assert agent.stream.bytes_read == read < 200_000
        assert len(asyncio.all_tasks()) <= tasks + 1
        agent.listener.gate.set()
        assert (await prompt.result).stop_reason == "end_turn"
        assert agent.listener.text() == "".join(f"{number} " for number in range(20_000))


async def test_few_large_messages_fill_the_queue_as_well(tmp_path: Path) -> None:
    limits = TransportLimits(queue_bytes=3 * 1024 * 1024)
    async with rogue(tmp_path, "long_lines", *[1] * 20, limits=limits) as agent:
        agent.listener.gate.clear()
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await eventually(lambda: agent.connection.backlog == 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert agent.connection.backlog == 3
        agent.listener.gate.set()
        assert (await prompt.result).stop_reason == "end_turn"
        assert len(agent.listener.updates) == 20


async def test_strange_ends_of_prompts(tmp_path: Path) -> None:
    async with rogue(tmp_path, "strange_ends") as agent:
        assert await agent.say("go") == "out_of_coffee"
        with pytest.raises(AgentProtocolError, match="without a stop reason"):
            await agent.say("go")
        with pytest.raises(AgentRefused, match="just no"):
            await agent.say("go")
        with pytest.raises(AgentAuthRequired, match="log in first"):
            await agent.say("go")


async def test_a_login_that_is_wanted_is_told_with_its_methods(tmp_path: Path) -> None:
    async with connected(*rogue_command("wants_login"), directory=tmp_path) as agent:
        await agent.connection.initialize(timeout=TIMEOUT)
        with pytest.raises(AgentAuthRequired) as wanted:
            await agent.connection.new_session(str(tmp_path), timeout=TIMEOUT)
        (method,) = wanted.value.methods
        assert (method.id, method.name, method.description) == ("browser", "In a browser", "opens a page")


async def test_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    async with connected(*rogue_command("newer"), directory=tmp_path) as agent:
        with pytest.raises(AgentProtocolError, match="speaks version 2"):
            await agent.connection.initialize(timeout=TIMEOUT)


async def test_a_malformed_answer_is_a_protocol_error_that_names_the_field(tmp_path: Path) -> None:
    async with connected(*rogue_command("malformed_session"), directory=tmp_path) as agent:
        await agent.connection.initialize(timeout=TIMEOUT)
        with pytest.raises(AgentProtocolError, match="session/new is malformed: sessionId"):
            await agent.connection.new_session(str(tmp_path), timeout=TIMEOUT)


async def test_an_answer_that_does_not_come_times_out(tmp_path: Path) -> None:
    async with connected("sleep", "1000", directory=tmp_path) as agent:
        with pytest.raises(AgentTimeout, match="did not answer initialize within"):
            await agent.connection.initialize(timeout=0.01)


async def test_an_agent_that_does_not_read_times_out_every_write_and_ends(tmp_path: Path) -> None:
    limits = TransportLimits(write_timeout=0.2, end_timeout=0.05)
    async with rogue(tmp_path, "silent", limits=limits) as agent:
        first = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await agent.listener.until(lambda listener: listener.updates)
        large = agent.connection.prompt("other", text_blocks("x" * 1_000_000))
        after = agent.connection.prompt("third", text_blocks("x"))
        with pytest.raises(AgentTimeout):
            await large.flushed
        assert not large.is_flushed
        with pytest.raises(AgentTimeout):
            await large.result
        with pytest.raises(AgentExited, match="an earlier write failed"):
            await after.flushed
        with pytest.raises(AgentTimeout):
            await first.result
        assert isinstance(await agent.connection.wait_closed(), AgentTimeout)


async def test_a_waiter_that_gives_up_spoils_nothing(demo: Agent) -> None:
    prompt = demo.connection.prompt(demo.session_id, text_blocks("sleep 1000"))
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await prompt.result
    assert not prompt.is_done
    assert await demo.connection.cancel(demo.session_id)
    assert (await prompt.result).stop_reason == "cancelled"


async def test_one_prompt_at_a_time_in_a_session(demo: Agent) -> None:
    prompt = demo.connection.prompt(demo.session_id, text_blocks("sleep 1000"))
    with pytest.raises(RuntimeError, match="has a prompt already"):
        demo.connection.prompt(demo.session_id, text_blocks("say x"))
    for _ in range(2):
        assert await demo.connection.cancel(demo.session_id)
    assert (await prompt.result).stop_reason == "cancelled"
    assert await demo.say("say x") == "end_turn"


async def test_close_fails_what_is_pending_and_ends_all_tasks(tmp_path: Path) -> None:
    async with rogue(tmp_path, "silent") as agent:
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await agent.listener.until(lambda listener: listener.updates)
        await agent.connection.close()
        with pytest.raises(AgentExited, match="was closed"):
            await prompt.result
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(AgentExited, match="was closed"):
            await agent.connection.initialize(timeout=TIMEOUT)


async def test_a_failing_listener_ends_the_connection_with_its_error(tmp_path: Path) -> None:
    async with rogue(tmp_path, "flood", 1000) as agent:
        agent.listener.error = LookupError("the journal is gone")
        with pytest.raises(HandlerFailed, match="the journal is gone") as failed:
            await agent.say("go")
        assert failed.value.__cause__ is agent.listener.error
        assert len(agent.listener.updates) == 1
        await agent.connection.drained()


async def test_the_prompt_is_flushed_before_its_answer_and_cancel_waits_for_it(tmp_path: Path) -> None:
    """A prompt larger than all buffers, to an agent that is held up: cancel must not overtake it."""
    async with connected(*demo_command(), directory=tmp_path) as agent:
        await agent.open(tmp_path)
        agent.stream.process.send_signal(signal.SIGSTOP)
        lines = ["sleep 1000", "x" * 5_000_000]
        prompt = agent.connection.prompt(agent.session_id, text_blocks(*lines))
        cancelling = asyncio.create_task(agent.connection.cancel(agent.session_id))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not prompt.is_flushed
        assert not cancelling.done()
        agent.stream.process.send_signal(signal.SIGCONT)
        await prompt.flushed
        assert await cancelling
        assert (await prompt.result).stop_reason == "cancelled"


async def test_a_question_holds_nothing_up_and_stop_answers_it(tmp_path: Path) -> None:
    asked = asyncio.Event()
    ended = asyncio.Event()

    async def wait(request: PermissionRequest) -> PermissionOutcome:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "yes"

    async with rogue(tmp_path, "asks_on") as agent:
        agent.listener.answer = wait
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await asked.wait()
        await agent.connection.drained()
        assert await agent.connection.cancel(agent.session_id)
        assert (await prompt.result).stop_reason == "cancelled"
        assert ended.is_set()
        assert [request.tool_call.title for request in agent.listener.requests] == ["first"]
        cancelled = {"outcome": {"outcome": "cancelled"}}
        assert json.loads(agent.listener.text()) == ["session/cancel", cancelled, cancelled]


async def test_a_question_that_opens_while_stopping_is_closed_at_once(tmp_path: Path) -> None:
    async def wait(request: PermissionRequest) -> PermissionOutcome:
        await asyncio.Event().wait()
        raise AssertionError

    async with rogue(tmp_path, "asks_on") as agent:
        agent.listener.answer = wait
        agent.listener.gate.clear()
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await agent.listener.until(lambda listener: listener.requests)
        assert await agent.connection.cancel(agent.session_id)
        agent.listener.gate.set()
        async with asyncio.timeout(TIMEOUT):
            assert (await prompt.result).stop_reason == "cancelled"


async def test_an_answer_that_fails_is_an_error_for_the_agent_only(demo: Agent) -> None:
    async def fail(request: PermissionRequest) -> PermissionOutcome:
        raise LookupError("nobody there")

    demo.listener.answer = fail
    assert await demo.say("ask to run true") == "end_turn"
    assert "refused" in demo.listener.text()


async def test_more_questions_than_can_be_open_end_the_connection(tmp_path: Path) -> None:
    async def wait(request: PermissionRequest) -> PermissionOutcome:
        await asyncio.Event().wait()
        raise AssertionError

    async with rogue(
        tmp_path, "floods_with_questions", limits=TransportLimits(unanswered_requests=10)
    ) as agent:
        agent.listener.answer = wait
        with pytest.raises(AgentProtocolError, match="requests open at the same time"):
            await agent.say("go")
        assert len(agent.listener.requests) == 10
