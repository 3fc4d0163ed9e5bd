"""A session goes on with a new agent on another runner, which is told what was said and done (T7)."""

from __future__ import annotations

import json
from pathlib import Path

from moorage.common.v1 import turn_pb2

from tests.runner.parts import Stack
from tests.runner.profiles import write_shell
from tests.runner.talks import Talks

DEMO = Path(__file__).parents[2] / "services" / "runner" / "agents" / "demo"
COMPLETED = turn_pb2.TURN_STATE_COMPLETED
RECONSTRUCTED = turn_pb2.RESUME_KIND_RECONSTRUCTED
BYTES = 6000
# Of the words around the history.
PREFACE = 600


async def test_tool_calls_are_told_with_their_results_within_bounds_and_not_repeated(
    stack: Stack, talks: Talks, tmp_path: Path, root: Path
) -> None:
    profiles = tmp_path / "profiles"
    profile = write_shell(profiles, "tapped", f"tee -a stdin.log | {{python}} -I -S {DEMO}")
    await stack.add_runner("one", profiles_directory=profiles)
    await talks.create("s", profile=profile)
    await talks.run("s", "long", "run echo too old to be told; seq 1 9000")
    await talks.run("s", "tool", "run echo once >> ran; echo the lighthouse is white")
    await talks.run("s", "more", "say and so it is")
    await stack.runners["one"].stop()
    for journal in root.glob(".moorage-demo/*/journal.jsonl"):
        journal.unlink()
    other = await stack.add_runner("two", profiles_directory=profiles, history_bytes=BYTES)
    turn = await talks.run("s", "next", "say here")
    assert (turn.state, turn.metadata.resume_kind) == (COMPLETED, RECONSTRUCTED)
    assert turn.metadata.runner_id == other.holder
    told, prompt = last_prompt(root / "stdin.log")
    assert prompt == "say here"
    assert "> You called the tool 'echo once >> ran; echo the lighthouse is white'." in told
    assert "> Tool result: the lighthouse is white" in told
    assert "> You: and so it is" in told
    assert "9000" not in told.partition("seq 1 9000")[2]
    assert len(told.encode()) <= BYTES + PREFACE
    assert (root / "ran").read_text() == "once\n"


def last_prompt(log: Path) -> list[str]:
    """The texts of the newest prompt among an agent's input."""
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    prompts = [message for message in messages if message.get("method") == "session/prompt"]
    return [block["text"] for block in prompts[-1]["params"]["prompt"]]
