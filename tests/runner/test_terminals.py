"""Commands that an agent has its client run, in a real workspace (T6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.record_pb2 import ToolCallStatus

from tests.conditions import eventually
from tests.processes import is_alive
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks

COMPLETED = turn_pb2.TURN_STATE_COMPLETED


def pids_in(root: Path) -> list[int]:
    """What commands wrote into files of their own."""
    return [int(text) for file in root.glob("*.pid") if (text := file.read_text().strip())]


async def test_a_command_runs_in_a_terminal_of_the_client(stack: Stack, talks: Talks, root: Path) -> None:
    await stack.add_runner()
    await talks.create("s")
    turn = await talks.run("s", "t", "terminal echo hello; pwd; exit 3\nterminal kill -KILL $$")
    assert turn.state == COMPLETED, turn
    said = await talks.said("s", "t")
    assert said == "The command ended with exit code 3.\nThe command ended with signal SIGKILL.\n"
    updates = [record.body.tool_update for record in await talks.records("s", "t")]
    shown = [update.content[0].terminal_id for update in updates if update.content]
    assert len(set(shown)) == 2
    failed = [update for update in updates if update.status == ToolCallStatus.TOOL_CALL_STATUS_FAILED]
    texts = [[item.block.text.text for item in update.content] for update in failed]
    assert texts == [["", f"hello\n{root}\n"], [""]]


async def test_all_that_terminals_can_do(stack: Stack, talks: Talks, root: Path, tmp_path: Path) -> None:
    profile = write_rogue(tmp_path / "profiles", "uses_terminals")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile, environment={"GREETING": "hi"})
    turn = await talks.run("s", "t", "go")
    assert turn.state == COMPLETED, turn
    beside, _, text = (await talks.said("s", "t")).partition("beside ")
    told = json.loads(text)
    exited = {"exitCode": 3, "signal": None}
    assert (beside, told["exit"], told["again"]) == ("", exited, exited)
    assert told["tail"] == {"output": "üß", "truncated": True, "exitStatus": exited}
    assert sorted(told["both"].splitlines()) == sorted(["out", "err", "hi o", str(root)])
    assert told["running"] == {"output": "started\n", "truncated": False}
    assert told["killed"] == [{}, {"exitCode": None, "signal": "SIGKILL"}]
    assert (told["kept"], told["released"]) == ("started\n", {})
    assert told["gone"][0] == -32002
    assert "/no/such/program" in told["missing"][1]
    assert "outside" in told["outside"][1]
    assert (told["long"][0], "1048576" in told["long"][1]) == (-32602, True)
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_WARM
    assert told["relative"] == [-32602, "cwd: 'sub' is not absolute"]


@pytest.mark.parametrize(("arguments", "ends"), [((), COMPLETED), (("exit",), turn_pb2.TURN_STATE_FAILED)])
async def test_no_terminal_outlives_its_turn(
    stack: Stack,
    talks: Talks,
    root: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    ends: turn_pb2.TurnState.ValueType,
) -> None:
    profile = write_rogue(tmp_path / "profiles", "opens_many_terminals", *arguments)
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    turn = await talks.run("s", "t", "go")
    assert turn.state == ends, turn
    code, words = json.loads(await talks.said("s", "t"))
    assert (code, "16 terminals are open" in words) == (-32600, True)
    pids = pids_in(root)
    assert len(pids) == 16
    assert not any(map(is_alive, pids))


async def test_a_stop_ends_what_runs_in_a_terminal_and_leaves_the_agent_warm(
    stack: Stack, talks: Talks, root: Path
) -> None:
    await stack.add_runner()
    await talks.create("s")
    await talks.start("s", "t", "terminal echo $$ > t.pid; exec sleep 1000")
    await eventually(lambda: pids_in(root) != [], within=20, what="the command runs")
    (pid,) = pids_in(root)
    await talks.stop("s", "t")
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.runtime_after) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.RUNTIME_AFTER_WARM)
    assert not is_alive(pid)
    await talks.run("s", "next", "terminal echo on\nsay done")
    assert (await talks.turn("s", "next")).metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
    assert await talks.said("s", "next") == "The command ended with exit code 0.\ndone"


async def test_no_terminal_outlives_the_lease(stack: Stack, talks: Talks, root: Path) -> None:
    runner = await stack.add_runner(lease_ttl=2.0)
    await talks.create("s")
    await talks.start("s", "t", "terminal echo $$ > t.pid; exec sleep 1000")
    await eventually(lambda: pids_in(root) != [], within=20, what="the command runs")
    (pid,) = pids_in(root)
    await stack.owner.stop()
    await eventually(lambda: not is_alive(pid), within=10, what="the command was ended")
    await eventually(lambda: not list(runner.executions), what="the turn was forgotten")
    await stack.owner.start()
    assert (await talks.ended("s", "t")).state == turn_pb2.TURN_STATE_LOST
