"""Runners that are paused, killed, restarted, told to end: one holder, one ending, nothing of another's (F4 to F11).

`FAULTS` is how often each happens (1), `FAULT_SEED` when: a process is hit after its agent has counted so far.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import journal_pb2, session_pb2

from services.common.channels import open_channel
from tests.conditions import eventually
from tests.fakes import Gate, JournalBetween, journal_between
from tests.processes import is_alive
from tests.runner.holding import live_leases
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue, write_shell
from tests.runner.talks import Talks, kinds_of
from tests.system.owning import LEASE, Processes, Runners, logged, replaying
from tests.system.repeating import SEED, rounds

# Processes take their time to start on a busy machine.
pytestmark = pytest.mark.timeout(180)

COMPLETED, LOST = turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_LOST
LOADED = turn_pb2.RESUME_KIND_LOADED
ASKED = ("one", "is shutting down")
DEMO = Path(__file__).parents[2] / "services" / "runner" / "agents" / "demo"
LEAVES_ONE = "run setsid sh -c 'echo $$ > child; exec sleep 600' & until test -s child; do sleep 0.01; done"
# An old grant is good for the verifiers' clocks all the time: only the stored tokens protect.
NO_CLOCKS = {"session": {"max_clock_skew": 60.0}, "workspace": {"max_clock_skew": 60.0}}


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    """Owner, workspace and session in this process; runners are not."""
    root = tmp_path / "root"
    root.mkdir()
    stack = Stack(database_url, root, tmp_path / "state", NO_CLOCKS)
    await stack.start()
    yield stack
    await stack.stop()


@pytest.fixture
async def talks(stack: Stack) -> AsyncIterator[Talks]:
    """A client."""
    async with open_channel(stack.session.endpoint) as channel:
        yield Talks(channel)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Of an agent whose input is kept, and of one that cannot load and says what it is told."""
    directory = tmp_path / "profiles"
    write_shell(directory, "tapped", f"tee -a stdin.log | {{python}} -I -S {DEMO}")
    write_rogue(directory, "repeats")
    return directory


@pytest.fixture
def runners(stack: Stack, tmp_path: Path, profiles: Path) -> Runners:
    """None yet."""
    return Runners(stack, tmp_path, profiles)


def hit_at(number: int, name: str) -> int:
    """How far an agent counts before the fault."""
    return random.Random(f"{SEED} {name} {number}").randint(5, 150)


async def check_one_ending_each(talks: Talks, session_id: str, turn_ids: Iterable[str]) -> None:
    """Whatever happened, and whoever wrote."""
    ends = Counter(
        record.turn_id
        for record in await talks.records(session_id)
        if record.body.WhichOneof("body") == "turn_ended"
    )
    assert ends == Counter(turn_ids)


class Paused:
    """Three sessions of a runner that is about to be stopped, and one of another that is not.

    `flood` has records on their way, `asks` a question whose answer is on its way, `starts` a
    prompt that is about to be sent.
    """

    def __init__(self, stack: Stack, talks: Talks, runners: Runners, between: JournalBetween) -> None:
        self.stack, self.talks, self.between = stack, talks, between
        self.sent = runners.gates.hold("runner.prompt.before_send", "starts")
        self.answered = runners.gates.hold("runner.answer.received", "asks")
        self.held = Gate()
        self.trees: dict[str, Processes] = {}

    async def begin(self, number: int) -> None:
        """All at work on the one runner there is."""
        await self.talks.create("flood")
        await self.talks.start("flood", "flood", f"{LEAVES_ONE}\ncount to 100000 into flood.log every 0.01")
        for session_id, prompt in (("asks", "ask to run touch answered"), ("starts", "run touch prompted")):
            await self.talks.create(
                session_id, profile="tapped", approval_policy=turn_pb2.APPROVAL_POLICY_ASK
            )
            await self.talks.start(session_id, session_id, prompt)
        await eventually(self._asks, within=30, what="a question waits")
        (asked,) = (await self.talks.turn("asks", "asks")).pending_interaction_ids
        request = session_pb2.AnswerInteractionRequest(
            session_id="asks", interaction_id=asked, option_id="once"
        )
        await self.talks.stub.AnswerInteraction(request)
        await self.answered.reached()
        await self.sent.reached()
        await logged(self.stack, "flood.log", hit_at(number, "paused"))
        self.between.before["AppendRecords"] = self.held
        await self.held.reached.wait()
        self.trees = {name: Processes(self.stack, name) for name in ("flood", "asks", "starts")}
        assert all(tree.alive for tree in self.trees.values())

    async def _asks(self) -> bool:
        return (await self.talks.turn("asks", "asks")).state == turn_pb2.TURN_STATE_AWAITING_INPUT

    async def lost(self) -> None:
        """Each turn has ended, once, and nothing of them lives."""
        for name, tree in self.trees.items():
            turn = await self.talks.ended(name, name)
            assert (turn.state, turn.end_reason) == (LOST, turn_pb2.END_REASON_LEASE_LOST)
            kinds = kinds_of(await self.talks.records(name, name))
            assert (kinds[-1], kinds.count("error")) == ("turn_ended", 1)
            assert tree.alive == []
        child = int((self.stack.root / "child").read_text())
        assert not is_alive(child)


@rounds
async def test_a_runner_that_was_paused_beyond_its_lease_while_another_took_over(
    stack: Stack, talks: Talks, runners: Runners, number: int
) -> None:
    async with (
        journal_between(stack.session.service.journal_endpoint) as between,
        runners.start("one", journal=between.endpoint) as one,
    ):
        await one.logged("registered")
        paused = Paused(stack, talks, runners, between)
        await paused.begin(number)
        async with runners.start("two") as two:
            await two.logged("registered")
            await talks.create("untouched")
            await talks.start("untouched", "t", "count to 400 into untouched.log every 0.02\nsay done")
            await logged(stack, "untouched.log", 2)
            other = Processes(stack, "untouched")
            one.send(signal.SIGSTOP)
            await paused.lost()
            for name in paused.trees:
                turn = await talks.run(name, "next", "say from another")
                assert turn.state == COMPLETED
                assert turn.metadata.token > (await talks.turn(name, name)).metadata.token
            inputs = (stack.root / "stdin.log").read_bytes()
            before = {name: await talks.records(name) for name in paused.trees}
            # What was on its way arrives now, and the runner goes on where it was.
            paused.held.open.set()
            paused.sent.release()
            paused.answered.release()
            one.send(signal.SIGCONT)
            await eventually(lambda: len(one.events("lease lost")) >= len(paused.trees), within=30)
            await eventually(lambda: len(one.events("registered")) > 1, within=30, what="it registers anew")
            await eventually(lambda: between.refused.total() > 0, within=30, what="writes were refused")
            async with replaying(stack) as replay:
                for name in paused.trees:
                    workspace_id = (await talks.session(name)).workspace.workspace_id
                    await replay.all(list(between.seen), name, workspace_id)
            print(f"refused on their way: {dict(between.refused)}, by hand: {dict(replay.refused)}")
            assert set(between.refused) == {"STALE_OWNER"}
            assert set(replay.refused) == {"STALE_OWNER"}
            assert replay.refused.total() > 20
            for name in paused.trees:
                assert await talks.records(name) == before[name]
                await check_one_ending_each(talks, name, (name, "next"))
            assert (stack.root / "stdin.log").read_bytes() == inputs
            assert b'"text":"run touch prompted"' not in inputs
            for name in ("answered", "prompted", "replayed"):
                assert not (stack.root / name).exists()
            assert between.requests(journal_pb2.FinishTurnRequest) == []
            # The one's fate was nobody else's.
            turn = await talks.ended("untouched", "t")
            assert (turn.state, await is_counted(talks, 400)) == (COMPLETED, True)
            assert other.pids
            assert turn.metadata.runner_id.startswith("two")
            # It is as good as new.
            two.send(signal.SIGTERM)
            assert await two.exit_code() == 0
        turn = await talks.run("asks", "again", "say anew")
        assert turn.state == COMPLETED
        assert turn.metadata.runner_id.startswith("one")


async def is_counted(talks: Talks, number: int) -> bool:
    """Whether the untouched agent has counted without a gap."""
    said = await talks.said("untouched", "t")
    return [int(line) for line in said.split() if line.isdigit()][-number:] == list(range(1, number + 1))


@rounds
async def test_a_runner_that_was_killed_and_started_again_under_its_name_within_the_lease(
    stack: Stack, talks: Talks, runners: Runners, number: int
) -> None:
    async with journal_between(stack.session.service.journal_endpoint) as between:
        await talks.create("s")
        async with runners.start("one", journal=between.endpoint) as first:
            await first.logged("registered")
            await talks.start("s", "t", f"{LEAVES_ONE}\ncount to 100000 into s.log every 0.01")
            await logged(stack, "s.log", hit_at(number, "killed"))
            holder = first.events("registered")[0]["holder"]
            tree = Processes(stack, "s")
            first.send(signal.SIGKILL)
        killed_at = time.monotonic()
        async with runners.start("one") as second:
            turn = await talks.ended("s", "t")
            assert (turn.state, turn.end_reason) == (LOST, turn_pb2.END_REASON_LEASE_LOST)
            assert time.monotonic() - killed_at < LEASE + 3.0
            assert kinds_of(await talks.records("s", "t"))[-2:] == ["error", "turn_ended"]
            assert tree.pids and tree.alive == []
            next_turn = await talks.run("s", "next", "say here again")
            assert second.events("registered")[0]["holder"] != holder
        assert next_turn.state == COMPLETED
        assert next_turn.metadata.token > turn.metadata.token
        async with replaying(stack) as replay:
            await replay.all(list(between.seen), "s", (await talks.session("s")).workspace.workspace_id)
        assert set(replay.refused) == {"STALE_OWNER"}
        print(f"refused by hand: {dict(replay.refused)}")
        await check_one_ending_each(talks, "s", ("t", "next"))


@rounds
@pytest.mark.parametrize(
    ("profile", "kind"), [("demo", LOADED), ("repeats", turn_pb2.RESUME_KIND_RECONSTRUCTED)]
)
async def test_after_kill_9_the_next_turn_knows_the_history_elsewhere_soon(
    stack: Stack,
    talks: Talks,
    runners: Runners,
    profile: str,
    kind: turn_pb2.ResumeKind.ValueType,
    number: int,
) -> None:
    await talks.create("s", profile=profile)
    async with runners.start("one") as one:
        await one.logged("registered")
        assert (await talks.run("s", "first", "remember the lighthouse")).state == COMPLETED
        async with runners.start("two") as two:
            await two.logged("registered")
            one.send(signal.SIGKILL)
            killed_at = time.monotonic()
            turn = await talks.run("s", "next", "recall")
            took = time.monotonic() - killed_at
    print(f"next turn {took:.2f} s after the kill, lease {LEASE} s")
    assert took <= 1.1 * LEASE + 2.0
    assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, kind)
    assert turn.metadata.runner_id.startswith("two")
    assert "the lighthouse" in await talks.said("s", "next")


async def test_sigterm_ends_what_is_parked_and_the_next_turn_is_taken_elsewhere_at_the_first_try(
    stack: Stack, talks: Talks, runners: Runners, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with runners.start("one", "--drain-timeout", "20") as one:
        await one.logged("registered")
        for session_id in ("parked", "busy"):
            await talks.create(session_id)
        assert (await talks.run("parked", "t", "remember the lighthouse")).state == COMPLETED
        await talks.start("busy", "t", "remember the harbour\nsay begun\nsleep 2\nsay done")
        await talks.says("busy", "t", "begun")
        async with runners.start("two") as two:
            await two.logged("registered")
            one.send(signal.SIGTERM)
            asked_at = time.monotonic()
            for session_id, words in (("parked", "the lighthouse\n"), ("busy", "the harbour\n")):
                await talks.ended(session_id, "t")
                await given_back(stack, "runners/one", f"projects/default/sessions/{session_id}")
                turn = await talks.run(session_id, "next", "recall")
                assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, LOADED)
                assert turn.metadata.runner_id.startswith("two")
                assert await talks.said(session_id, "next") == words
                # Whoever kept the agent may be asked for it; then the first runner that is asked has it.
                told = [offer for offer in offers(caplog, session_id, "next") if offer != ASKED]
                assert told and set(told) == {("two", "has taken the turn")}
            # Far from waiting until a lease ends.
            print(f"both elsewhere {time.monotonic() - asked_at:.2f} s after SIGTERM")
            assert (await talks.turn("busy", "t")).state == COMPLETED
            assert (await talks.said("busy", "t")).endswith("done")
            assert await one.exit_code() == 0
            leases = await live_leases(stack.owner.endpoint)
            assert sorted(leases) == [f"projects/default/sessions/{name}" for name in ("busy", "parked")]


async def given_back(stack: Stack, *resources: str) -> None:
    """Return when nobody holds any of these."""

    async def is_free() -> bool:
        return not {*resources} & {*await live_leases(stack.owner.endpoint, "")}

    await eventually(is_free, within=30, what=f"{resources} were given back")


def offers(caplog: pytest.LogCaptureFixture, session_id: str, turn_id: str) -> list[tuple[str, str]]:
    """To whom a turn was offered, in order, and with what result."""
    told = [vars(record) for record in caplog.records if record.getMessage() == "turn offered"]
    return [
        (event["runner"].partition("/")[0], event["result"])
        for event in told
        if (event["session"], event["turn"]) == (session_id, turn_id)
    ]
