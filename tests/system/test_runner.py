"""Runners and workspace instances as processes: killed, stopped, started again."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.runner.v1 import runner_pb2
from moorage.session.v1 import journal_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.fakes import journal_between
from tests.processes import is_alive
from tests.runner.holding import delivering
from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of
from tests.system.service_process import ServiceProcess

# Processes take their time to start on a busy machine.
pytestmark = pytest.mark.timeout(150)

LEASE = 3.0
FAST = ("--lease-ttl", str(LEASE), "--terminate-timeout", "0.5")


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Owner, workspace and session in this process; runners are not."""
    root = tmp_path / "root"
    root.mkdir()
    stack = Stack(database_url, root, tmp_path / "state")
    await stack.start()
    yield stack
    await stack.stop()


@pytest.fixture
async def talks(stack: Stack) -> AsyncIterator[Talks]:
    """A client."""
    async with open_channel(stack.session.endpoint) as channel:
        yield Talks(channel)


def runner_process(
    stack: Stack, tmp_path: Path, name: str, *more: str, failpoints: str = "", journal: str = ""
) -> ServiceProcess:
    """A runner of the stack, with short leases."""
    addresses = (
        *("--owner-address", stack.owner.endpoint),
        *("--journal-address", journal or stack.session.service.journal_endpoint),
        *("--workspace-address", stack.workspace.endpoint),
    )
    flags = ("--name", name, *addresses, *FAST, *more)
    return ServiceProcess("runner", tmp_path / f"{name}.log", *flags, failpoints=failpoints)


async def live_leases(stack: Stack, prefix: str) -> list[str]:
    """The resources of live leases."""
    async with open_channel(stack.owner.endpoint) as channel:
        request = lease_pb2.ListLeasesRequest(prefix=prefix, live_only=True)
        return [lease.resource for lease in (await LeaseServiceStub(channel).ListLeases(request)).leases]


async def working(talks: Talks, session_id: str) -> int:
    """Wait until the agent works; its process id."""

    async def tells() -> bool:
        return "pid " in await talks.said(session_id, "t")

    await eventually(tells, within=20, what="the agent told its pid")
    return int((await talks.said(session_id, "t")).split()[1])


async def test_a_killed_runners_turn_is_lost_soon_and_the_next_turn_runs_elsewhere(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    await talks.create("s")
    async with runner_process(stack, tmp_path, "first") as first:
        await first.logged("registered")
        await talks.start("s", "t", "pid\ncount to 100000 every 0.01")
        pid = await working(talks, "s")
        first.send(signal.SIGKILL)
        killed_at = time.monotonic()
        turn = await talks.ended("s", "t")
    assert time.monotonic() - killed_at < LEASE + 3.0
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_LOST, turn_pb2.END_REASON_LEASE_LOST)
    assert turn.prompt_sent
    assert kinds_of(await talks.records("s", "t"))[-2:] == ["error", "turn_ended"]
    async with runner_process(stack, tmp_path, "second") as second:
        await second.logged("registered")
        next_turn = await talks.run("s", "next", "say still here")
    assert next_turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert next_turn.metadata.token > turn.metadata.token
    assert await talks.said("s", "next") == "still here"
    assert not is_alive(pid)


async def test_a_runner_takes_turns_as_soon_as_it_can_be_found(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    await talks.create("s")
    async with runner_process(stack, tmp_path, "one") as runner:
        await runner.logged("registered")
        async with delivering(runner.events("serving")[0]["endpoint"]) as deliveries:
            assert await deliveries.dispatch("s", "never-admitted") == runner_pb2.DISPATCH_RESULT_ACCEPTED


async def test_a_runner_without_turns_ends_at_once_on_sigterm_and_leaves_no_lease(
    stack: Stack, tmp_path: Path
) -> None:
    async with runner_process(stack, tmp_path, "idle") as runner:
        await runner.logged("registered")
        asked_at = time.monotonic()
        runner.send(signal.SIGTERM)
        assert await runner.exit_code() == 0
        assert time.monotonic() - asked_at < 3.0
    assert await live_leases(stack, "runners/") == []


async def test_sigterm_lets_a_turn_finish(stack: Stack, talks: Talks, tmp_path: Path) -> None:
    await talks.create("s")
    async with runner_process(stack, tmp_path, "one") as runner:
        await runner.logged("registered")
        await talks.start("s", "t", "pid\ncount to 100 into log every 0.01")
        await working(talks, "s")
        runner.send(signal.SIGTERM)
        assert await runner.exit_code() == 0
    turn = await talks.turn("s", "t")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert await live_leases(stack, "") == ["instances/local"]


@pytest.mark.parametrize(
    ("words", "method", "stop_reason"),
    [
        ("sleep 600", turn_pb2.STOP_METHOD_AGENT_CONFIRMED, "cancelled"),
        ("hang", turn_pb2.STOP_METHOD_TERMINATED, ""),
        ("hang hard", turn_pb2.STOP_METHOD_KILLED, ""),
    ],
)
async def test_sigterm_stops_a_turn_that_does_not_finish_in_time(
    stack: Stack,
    talks: Talks,
    tmp_path: Path,
    words: str,
    method: turn_pb2.StopMethod.ValueType,
    stop_reason: str,
) -> None:
    await talks.create("s")
    quick = ("--drain-timeout", "0.3", "--cancel-timeout", "0.5")
    async with runner_process(stack, tmp_path, "one", *quick) as runner:
        await runner.logged("registered")
        await talks.start("s", "t", f"pid\n{words}")
        pid = await working(talks, "s")
        runner.send(signal.SIGTERM)
        assert await runner.exit_code() == 0
    turn = await talks.turn("s", "t")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_DRAINED)
    ended = (await talks.records("s", "t"))[-1].body.turn_ended
    assert ended.stop_method == method
    assert (turn.stop_reason, turn.runtime_after) == (stop_reason, turn_pb2.RUNTIME_AFTER_ENDED)
    assert not is_alive(pid)
    assert await live_leases(stack, "") == ["instances/local"]


async def test_a_prompt_that_was_not_sent_is_withdrawn_on_sigterm(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    await talks.create("s")
    await stack.workspace.stop()
    async with runner_process(stack, tmp_path, "one", "--drain-timeout", "0.3") as runner:
        await runner.logged("registered")
        await talks.start("s", "t", "say too late")

        async def waits() -> bool:
            return bool((await talks.turn("s", "t")).HasField("begin_time"))

        await eventually(waits)
        runner.send(signal.SIGTERM)
        assert await runner.exit_code() == 0
    turn = await talks.turn("s", "t")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_DRAINED)
    assert not turn.prompt_sent
    ended = (await talks.records("s", "t"))[-1].body.turn_ended
    assert ended.stop_method == turn_pb2.STOP_METHOD_PROMPT_WITHDRAWN


async def test_a_killed_workspace_instance_loses_its_turn_and_the_next_runs_on_its_successor(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    arguments = (
        *("--root", str(stack.root), "--default-directory", str(stack.root)),
        *("--state-directory", str(stack.state), "--owner-address", stack.owner.endpoint),
        *("--database-url", stack.database_url, "--lease-ttl", "2"),
    )
    await stack.workspace.stop()
    endpoint = stack.workspace.endpoint
    await stack.add_runner(lease_ttl=LEASE)
    async with ServiceProcess("workspace", tmp_path / "first.log", *arguments, listen=endpoint) as first:
        await first.logged("ready")
        await talks.create("s")
        await talks.start("s", "t", "pid\ncount to 100000 every 0.01")
        await working(talks, "s")
        first.send(signal.SIGKILL)
        turn = await talks.ended("s", "t")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_FAILED, turn_pb2.END_REASON_WORKSPACE_LOST)
    assert kinds_of(await talks.records("s", "t"))[-1] == "turn_ended"
    async with ServiceProcess("workspace", tmp_path / "second.log", *arguments, listen=endpoint):
        next_turn = await talks.run("s", "next", "say on the successor")
        assert next_turn.state == turn_pb2.TURN_STATE_COMPLETED
        await stack.runners["one"].stop()


@pytest.mark.parametrize(
    ("failpoint", "state", "prompt_sent", "said"),
    [
        ("runner.begin_turn.after", turn_pb2.TURN_STATE_LOST, False, ""),
        ("runner.prompt.before_send", turn_pb2.TURN_STATE_LOST, True, ""),
        ("runner.finish_turn.before", turn_pb2.TURN_STATE_LOST, True, "all of it"),
        ("runner.finish_turn.after", turn_pb2.TURN_STATE_COMPLETED, True, "all of it"),
    ],
)
async def test_a_runner_that_dies_at_any_step_ends_its_turn_once_and_never_runs_it_again(
    stack: Stack,
    talks: Talks,
    tmp_path: Path,
    failpoint: str,
    state: turn_pb2.TurnState.ValueType,
    prompt_sent: bool,
    said: str,
) -> None:
    await talks.create("s")
    async with runner_process(stack, tmp_path, "first", failpoints=f"{failpoint}=kill") as first:
        await first.logged("registered")
        await talks.start("s", "t", "say all of it\nrun echo ran >> ran")
        assert await first.exit_code() == -signal.SIGKILL
    async with runner_process(stack, tmp_path, "second") as second:
        await second.logged("registered")
        turn = await talks.ended("s", "t")
        next_turn = await talks.run("s", "next", "say next")
    assert (turn.state, turn.prompt_sent) == (state, prompt_sent)
    assert (await talks.said("s", "t")).startswith(said)
    assert kinds_of(await talks.records("s", "t")).count("turn_ended") == 1
    ran = stack.root / "ran"
    assert (ran.read_text() if ran.exists() else "") == ("ran\n" if said else "")
    assert next_turn.state == turn_pb2.TURN_STATE_COMPLETED


async def test_a_runner_that_was_paused_beyond_its_lease_writes_nothing_and_goes_on_with_new_turns(
    stack: Stack, talks: Talks, tmp_path: Path
) -> None:
    await talks.create("s")
    async with (
        journal_between(stack.session.service.journal_endpoint) as between,
        runner_process(stack, tmp_path, "one", journal=between.endpoint) as runner,
    ):
        await runner.logged("registered")
        await talks.start("s", "t", "pid\ncount to 100000 every 0.01")
        pid = await working(talks, "s")
        runner.send(signal.SIGSTOP)
        turn = await talks.ended("s", "t")
        assert turn.state == turn_pb2.TURN_STATE_LOST
        await eventually(lambda: not is_alive(pid), what="the workspace ended the agent with its grant")
        before = await talks.records("s")
        runner.send(signal.SIGCONT)
        next_turn = await talks.run("s", "next", "say anew")
        assert next_turn.state == turn_pb2.TURN_STATE_COMPLETED
        after = await talks.records("s")
        assert after[: len(before)] == before
        assert {record.turn_id for record in after[len(before) :]} == {"next"}
        finished = between.requests(journal_pb2.FinishTurnRequest)
        assert [request.turn_id for request in finished] == ["next"]
        runner.send(signal.SIGTERM)
        assert await runner.exit_code() == 0


async def test_a_bad_profile_is_one_line_and_an_exit_code(stack: Stack, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "broken.toml").write_text("name = 5", encoding="utf-8")
    async with runner_process(stack, tmp_path, "one", "--profiles-directory", str(profiles)) as runner:
        assert await runner.exit_code() == 1
    (line,) = (tmp_path / "one.log").read_text().splitlines()
    assert "refused to start" in line
    assert "broken.toml" in line
    assert "Traceback" not in line


async def test_a_bad_setting_names_the_flag(tmp_path: Path) -> None:
    async with ServiceProcess("runner", tmp_path / "log", "--capacity", "0") as runner:
        assert await runner.exit_code() == 2
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert "--capacity" in line
