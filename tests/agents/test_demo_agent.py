"""The demo agent does what its table of words says; the real process, through the real connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from pathlib import Path

import pytest

from services.runner.acp.errors import AgentExited, AgentRefused
from services.runner.acp.messages import PermissionOutcome, PermissionRequest
from tests.agents.peers import TIMEOUT, Agent, Listener, connected, demo_command, text_blocks
from tests.conditions import eventually


async def answer_always(request: PermissionRequest) -> PermissionOutcome:
    return "always"


async def answer_no(request: PermissionRequest) -> PermissionOutcome:
    return "no"


async def wait_for_ever(request: PermissionRequest) -> PermissionOutcome:
    await asyncio.Event().wait()
    raise AssertionError


def tool_states(listener: Listener) -> list[str]:
    calls = [update.raw["update"] for update in listener.updates if update.kind.startswith("tool_call")]
    return [call["status"] for call in calls]


def tool_output(listener: Listener) -> str:
    update = listener.updates[-1]
    for update in listener.updates:
        if update.raw["update"].get("content") and update.kind == "tool_call_update":
            break
    return str(update.raw["update"]["content"][0]["content"]["text"])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def running_commands() -> str:
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_text().replace("\0", " "))
    return "\n".join(lines)


async def test_introduces_itself_in_time(tmp_path: Path) -> None:
    best = 1.0
    for _ in range(5):
        started = time.monotonic()
        async with connected(*demo_command(), directory=tmp_path) as agent:
            info = await agent.connection.initialize(timeout=TIMEOUT)
            best = min(best, time.monotonic() - started)
        assert (info.name, info.capabilities.load_session) == ("moorage-demo", True)
    assert best < 0.2


async def test_says_and_thinks_in_several_chunks(demo: Agent) -> None:
    text = "four words, and  two spaces"
    assert await demo.say(f"say {text}", "THINK deep thoughts") == "end_turn"
    assert demo.listener.text() == text
    assert demo.listener.text("agent_thought_chunk") == "deep thoughts"
    said = [update.model for update in demo.listener.updates if update.kind == "agent_message_chunk"]
    assert len(said) == 5
    assert len({chunk.message_id for chunk in said}) == 1


async def test_tells_what_it_can_be_told(demo: Agent) -> None:
    assert await demo.say("help") == "end_turn"
    told = demo.listener.text()
    words = (
        "say TEXT",
        "ask to run",
        "fill in NAME",
        "count to N",
        "[every SECONDS]",
        "remember",
        "hang hard",
        "help",
    )
    assert [word for word in words if word not in told] == []


async def test_echoes_whatever_is_no_command(demo: Agent) -> None:
    assert await demo.say("say", "runs on", "", "say x") == "end_turn"
    assert demo.listener.text() == "You said: say\nruns onx"
    kinds = demo.listener.kinds()
    assert kinds[0] == "plan"
    assert "agent_thought_chunk" in kinds
    plans = [update.model for update in demo.listener.updates if update.kind == "plan"]
    assert [[entry.status for entry in plan.entries] for plan in plans] == [
        ["in_progress", "pending"],
        ["completed", "in_progress"],
        ["completed", "completed"],
    ]


async def test_a_large_prompt_comes_back_whole(demo: Agent) -> None:
    text = "wörter " * 40_000
    assert await demo.say(text) == "end_turn"
    assert demo.listener.text() == f"You said: {text}"
    assert len(demo.listener.updates) < 50


async def test_runs_a_command_in_the_directory_of_the_session(demo: Agent, tmp_path: Path) -> None:
    assert await demo.say("run pwd; echo oops >&2; exit 3") == "end_turn"
    assert tool_states(demo.listener) == ["pending", "in_progress", "failed"]
    assert tool_output(demo.listener) == f"{tmp_path}\noops\n"
    assert "exit code 3" in demo.listener.text()


async def test_a_command_may_wait_for_its_children_and_leaves_none(demo: Agent, tmp_path: Path) -> None:
    assert await demo.say("run sleep 0 & wait; sleep 1000 & echo $!") == "end_turn"
    assert tool_states(demo.listener)[-1] == "completed"
    await eventually(lambda: not is_alive(int(tool_output(demo.listener))))


async def test_a_command_that_is_killed_says_so(demo: Agent) -> None:
    assert await demo.say("run kill -TERM $$") == "end_turn"
    assert "signal 15" in demo.listener.text()


async def test_much_output_is_cut(demo: Agent) -> None:
    assert await demo.say("run head -c 1000000 /dev/zero | tr '\\0' x") == "end_turn"
    assert tool_output(demo.listener) == "x" * 65536


async def test_asks_before_it_runs_and_not_again_when_always_allowed(demo: Agent) -> None:
    demo.listener.answer = answer_always
    assert await demo.say("ask to run echo asked", "ask to run echo again") == "end_turn"
    (request,) = demo.listener.requests
    assert request.tool_call.title == "echo asked"
    assert [option.kind for option in request.options] == ["allow_once", "allow_always", "reject_once"]
    assert tool_states(demo.listener) == ["pending", "in_progress", "completed"] * 2


async def test_runs_nothing_that_is_refused(demo: Agent, tmp_path: Path) -> None:
    demo.listener.answer = answer_no
    assert await demo.say("ask to run touch ran") == "end_turn"
    assert tool_states(demo.listener) == ["pending", "failed"]
    assert "refused" in demo.listener.text()
    assert not (tmp_path / "ran").exists()


async def test_counts_and_logs_each_number_before_it_is_sent(demo: Agent, tmp_path: Path) -> None:
    assert await demo.say("count to 200") == "end_turn"
    expected = "".join(f"{number}\n" for number in range(1, 201))
    assert demo.listener.text() == expected
    assert len(demo.listener.updates) == 200
    assert (tmp_path / ".moorage-demo" / demo.session_id / "count.log").read_text() == expected


async def test_counts_into_a_file_and_the_file_is_ahead(demo: Agent, tmp_path: Path) -> None:
    demo.listener.gate.clear()
    prompt = demo.connection.prompt(demo.session_id, text_blocks("count to 100000 into n.log every 0.001"))
    await demo.listener.until(lambda listener: listener.updates)
    assert (tmp_path / "n.log").read_text().startswith("1\n")
    demo.listener.gate.set()
    await demo.listener.until(lambda listener: len(listener.updates) > 20)
    assert await demo.connection.cancel(demo.session_id)
    assert (await prompt.result).stop_reason == "cancelled"
    logged = (tmp_path / "n.log").read_text()
    assert logged.startswith(demo.listener.text())


async def test_a_file_that_cannot_be_written_fails_the_prompt(demo: Agent) -> None:
    with pytest.raises(AgentRefused, match="No such file or directory: .*missing/n"):
        await demo.say("count to 3 into missing/n")
    assert await demo.say("say still here") == "end_turn"


async def test_remembers_in_the_session_only(demo: Agent, tmp_path: Path) -> None:
    await demo.say("remember the milk", "remember the bread")
    await demo.say("recall")
    assert demo.listener.text().endswith("the milk\nthe bread\n")
    other = await demo.connection.new_session(str(tmp_path), timeout=TIMEOUT)
    await demo.connection.prompt(other.id, text_blocks("recall")).result
    assert demo.listener.text().endswith("Nothing remembered.\n")


async def test_another_process_loads_the_session_with_its_history(demo: Agent, tmp_path: Path) -> None:
    await demo.say("remember the milk", "say hello")
    async with connected(*demo_command(), directory=tmp_path) as successor:
        await successor.connection.initialize(timeout=TIMEOUT)
        await successor.connection.load_session(demo.session_id, str(tmp_path), timeout=TIMEOUT)
        replayed = list(successor.listener.updates)
        assert all(update.replayed and not update.in_prompt for update in replayed)
        assert replayed[0].raw["update"]["content"]["text"] == "remember the milk\nsay hello"
        assert [update.raw for update in replayed[1:]] == [update.raw for update in demo.listener.updates]
        successor.session_id = demo.session_id
        await successor.say("recall")
        assert successor.listener.text() == "the milk\n"
        assert not successor.listener.updates[-1].replayed


async def test_a_torn_journal_is_loaded_up_to_the_tear(demo: Agent, tmp_path: Path) -> None:
    await demo.say("remember the milk")
    journal = tmp_path / ".moorage-demo" / demo.session_id / "journal.jsonl"
    with journal.open("a") as file:
        file.write('{"remember": "the br')
    for _ in range(2):
        async with connected(*demo_command(), directory=tmp_path) as successor:
            await successor.connection.initialize(timeout=TIMEOUT)
            await successor.connection.load_session(demo.session_id, str(tmp_path), timeout=TIMEOUT)
            successor.session_id = demo.session_id
            await successor.say("recall")
            assert successor.listener.text() == "the milk\n"


@pytest.mark.parametrize("session_id", ["demo-0000000000000000", "../../etc", ""])
async def test_a_session_that_is_not_there_is_refused(demo: Agent, tmp_path: Path, session_id: str) -> None:
    with pytest.raises(AgentRefused, match="no such session") as refused:
        await demo.connection.load_session(session_id, str(tmp_path), timeout=TIMEOUT)
    assert refused.value.code == -32002
    with pytest.raises(AgentRefused, match="no such session"):
        await demo.connection.prompt(session_id, text_blocks("say x")).result


async def test_a_directory_that_is_not_there_is_refused(demo: Agent, tmp_path: Path) -> None:
    with pytest.raises(AgentRefused, match="no such directory"):
        await demo.connection.new_session(str(tmp_path / "missing"), timeout=TIMEOUT)


async def test_tells_who_it_is_and_the_trace_of_process_and_prompt(tmp_path: Path) -> None:
    environment = {"TRACEPARENT": "00-of-the-process"}
    async with connected(*demo_command(), directory=tmp_path, environment=environment) as agent:
        await agent.open(tmp_path)
        await agent.say("Who are you?")
        pid = agent.stream.process.pid
        expected = f"pid {pid}\nsession {agent.session_id}\ntraceparent 00-of-the-process\n"
        assert agent.listener.text() == expected
        meta = {"traceparent": "00-of-the-prompt"}
        await agent.connection.prompt(agent.session_id, text_blocks("pid"), meta=meta).result
        assert agent.listener.text().endswith("traceparent 00-of-the-prompt\n")


async def test_fails_when_told(demo: Agent) -> None:
    with pytest.raises(AgentRefused, match="on purpose") as refused:
        await demo.say("fail on purpose")
    assert refused.value.code == -32603
    assert await demo.say("say fine") == "end_turn"


async def test_exits_when_told(demo: Agent) -> None:
    with pytest.raises(AgentExited):
        await demo.say("say bye", "exit 7")
    assert demo.listener.text() == "bye"
    assert await demo.stream.process.wait() == 7


async def test_counts_words_as_tokens(demo: Agent) -> None:
    result = await demo.connection.prompt(demo.session_id, text_blocks("say one two")).result
    assert result.usage
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.total_tokens) == (3, 2, 5)


CANCELLABLE = ["sleep 1000", "count to 3 every 1000", "run echo $$ > pid; sleep 1000", "ask to run true"]


@pytest.mark.parametrize("line", CANCELLABLE)
async def test_a_cancel_is_honoured_and_the_session_goes_on(demo: Agent, tmp_path: Path, line: str) -> None:
    demo.listener.answer = wait_for_ever
    prompt = demo.connection.prompt(demo.session_id, text_blocks(line, "say never reached"))
    await demo.listener.until(lambda listener: listener.updates)
    if line.startswith("run"):
        await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    if line.startswith("ask"):
        await demo.listener.until(lambda listener: listener.requests)
    assert await demo.connection.cancel(demo.session_id)
    assert (await prompt.result).stop_reason == "cancelled"
    assert "never" not in demo.listener.text()
    if line.startswith("run"):
        assert not is_alive(int((tmp_path / "pid").read_text()))
    if "run" in line:
        assert tool_states(demo.listener)[-1] == "failed"
    assert await demo.say("pid") == "end_turn"
    assert f"pid {demo.stream.process.pid}\n" in demo.listener.text()


async def test_cancels_at_any_moment_leave_no_process(demo: Agent) -> None:
    """The cancel meets the tool before, while and after it starts."""
    command = f"sleep 1000.{demo.stream.process.pid}"
    for number in range(200):
        seen = len(demo.listener.updates) + number % 4
        prompt = demo.connection.prompt(demo.session_id, text_blocks("say x", f"run {command}"))
        await demo.listener.until(lambda listener, seen=seen: len(listener.updates) >= seen)  # type: ignore[misc]
        assert await demo.connection.cancel(demo.session_id)
        assert (await prompt.result).stop_reason == "cancelled"
    assert "in_progress" in tool_states(demo.listener)
    await eventually(lambda: command not in running_commands())


async def test_the_tool_dies_with_a_killed_agent(demo: Agent, tmp_path: Path) -> None:
    demo.connection.prompt(demo.session_id, text_blocks("run sh -c 'echo $$ > pid; sleep 1000'"))
    pid = tmp_path / "pid"
    await eventually(lambda: pid.exists() and pid.read_text() != "")
    assert is_alive(int(pid.read_text()))
    demo.stream.process.kill()
    await eventually(lambda: not is_alive(int(pid.read_text())))


async def test_ends_with_its_input_and_takes_the_tool_along(demo: Agent, tmp_path: Path) -> None:
    demo.connection.prompt(demo.session_id, text_blocks("run echo $$ > pid; exec sleep 1000"))
    pid = tmp_path / "pid"
    await eventually(lambda: pid.exists() and pid.read_text() != "")
    assert demo.stream.process.stdin
    demo.stream.process.stdin.close()
    async with asyncio.timeout(TIMEOUT):
        assert await demo.stream.process.wait() == 0
    await eventually(lambda: not is_alive(int(pid.read_text())))


@pytest.mark.parametrize(("line", "ending"), [("hang", -signal.SIGTERM), ("hang hard", -signal.SIGKILL)])
async def test_hangs_until_it_is_ended(demo: Agent, tmp_path: Path, line: str, ending: int) -> None:
    prompt = demo.connection.prompt(demo.session_id, text_blocks(line))
    await demo.listener.until(lambda listener: listener.text())
    assert await demo.connection.cancel(demo.session_id)
    other = await demo.connection.new_session(str(tmp_path), timeout=TIMEOUT)
    assert other.id != demo.session_id
    assert not prompt.is_done
    demo.stream.process.terminate()
    if line == "hang hard":
        assert re.search(
            r"SigIgn:\s+\w*[4567cdef]\w{3}\n", Path(f"/proc/{demo.stream.process.pid}/status").read_text()
        )
        demo.stream.process.kill()
    async with asyncio.timeout(TIMEOUT):
        assert await demo.stream.process.wait() == ending
    with pytest.raises(AgentExited):
        await prompt.result
