"""Each rung of a Stop: the agent and all that it started are gone, and everything that is told says so (S8, S9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import turn_pb2
from moorage.common.v1.turn_pb2 import StopMethod
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.gates import Gates
from tests.processes import is_alive
from tests.runner.holding import pid_in
from tests.runner.parts import Stack
from tests.runner.remains import Remains
from tests.runner.talks import Talks

# A process that has left everything but the agent's descendants.
LEAVES_ONE = "setsid sh -c 'echo $$ > child; exec sleep 600' & until test -s child; do sleep 0.01; done"
QUICK: dict[str, Any] = {"cancel_timeout": 0.5, "close_timeout": 0.2, "terminate_timeout": 0.5}

Event = Callable[[Stack, int], Awaitable[None]]


async def nothing_more(_: Stack, __: int) -> None:
    return


async def agent_exits(_: Stack, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))


async def workspace_goes(stack: Stack, _: int) -> None:
    await stack.workspace.stop()
    await stack.workspace.start()


@pytest.mark.parametrize(
    ("words", "event", "method"),
    [
        ("hang", agent_exits, "AGENT_EXITED"),
        ("hang", nothing_more, "TERMINATED"),
        ("hang hard", nothing_more, "KILLED"),
        ("hang hard", workspace_goes, "RUNTIME_DESTROYED"),
    ],
)
async def test_after_the_cancel(
    stack: Stack, talks: Talks, gates: Gates, root: Path, words: str, event: Event, method: str
) -> None:
    await stack.add_runner(**QUICK)
    await talks.create("s")
    await talks.start("s", "t", f"who are you\nrun {LEAVES_ONE}\n{words}")
    pid = pid_in(await talks.says("s", "t", "Hanging"))
    child = int((root / "child").read_text())
    gate = gates.hold("runner.stop.after_cancel", "t")
    command = await talks.stop("s", "t")
    await gate.reached()
    await event(stack, pid)
    gate.release()
    await is_told(talks, command.command_id, method, turn_pb2.RUNTIME_AFTER_ENDED)
    assert not is_alive(pid)
    assert not is_alive(child)
    await Remains(stack).nothing()


@pytest.mark.parametrize(
    ("moment", "method", "after"),
    [
        ("runner.prompt.before_send", "PROMPT_WITHDRAWN", turn_pb2.RUNTIME_AFTER_ENDED),
        ("runner.dispatch.registered", "NOT_BEGUN", turn_pb2.RUNTIME_AFTER_UNSPECIFIED),
    ],
)
async def test_before_the_prompt(
    stack: Stack,
    talks: Talks,
    gates: Gates,
    root: Path,
    moment: str,
    method: str,
    after: turn_pb2.RuntimeAfter.ValueType,
) -> None:
    runner = await stack.add_runner(**QUICK)
    await talks.create("s")
    gate = gates.hold(moment, "t")
    await talks.start("s", "t", "run touch ran")
    await gate.reached()
    command = await talks.stop("s", "t")
    if method == "NOT_BEGUN":
        gate.release()
    await is_told(talks, command.command_id, method, after)
    gate.release()
    await eventually(lambda: not list(runner.executions), what="nothing is executed")
    assert not (root / "ran").exists()
    await Remains(stack).nothing()


async def is_told(talks: Talks, command_id: str, method: str, after: turn_pb2.RuntimeAfter.ValueType) -> None:
    """Turn, record and command of the Stop tell the same."""
    wanted = (StopMethod.Value(f"STOP_METHOD_{method}"), after)
    turn = await talks.ended("s", "t")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_USER_STOP)
    assert (turn.stop_method, turn.runtime_after) == wanted
    ended = (await talks.records("s", "t"))[-1].body.turn_ended
    assert (ended.stop_method, ended.runtime_after) == wanted
    request = session_pb2.GetCommandRequest(session_id="s", command_id=command_id)
    command = (await talks.stub.GetCommand(request)).command
    assert command.outcome == session_pb2.COMMAND_OUTCOME_STOPPED
    assert (command.stop_method, command.runtime_after) == wanted
