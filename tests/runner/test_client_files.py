"""Files that an agent has its client read and write, in a real workspace (T6, W7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from tests.databases import execute
from tests.runner.parts import Stack
from tests.runner.profiles import write_rogue
from tests.runner.talks import Talks

COMPLETED = turn_pb2.TURN_STATE_COMPLETED


@pytest.fixture
async def agent(stack: Stack, talks: Talks) -> Talks:
    """Session s with the demo agent."""
    await stack.add_runner()
    await talks.create("s")
    return talks


async def answer(talks: Talks, turn_id: str, prompt: str) -> str:
    """What the agent says, in a turn that goes well."""
    turn = await talks.run("s", turn_id, prompt)
    assert turn.state == COMPLETED, turn
    return await talks.said("s", turn_id)


async def test_a_file_is_read_whole_or_by_lines(agent: Talks, root: Path) -> None:
    (root / "poem.txt").write_text("roses\nviolets\n\nsugar ä\n", encoding="utf-8")
    (root / "large.txt").write_text("".join(f"line {n}\n" for n in range(1, 400_001)))
    assert await answer(agent, "whole", "read poem.txt") == "roses\nviolets\n\nsugar ä\n"
    assert await answer(agent, "lines", "read poem.txt from line 2 for 1 line") == "violets\n"
    # Beyond the first of the parts in which it is fetched.
    said = await answer(agent, "far", "read large.txt from line 399999 for 2 lines")
    assert said == "line 399999\nline 400000\n"
    assert "cannot be read at once" in await answer(agent, "all", "read large.txt")


async def test_a_file_is_written_with_what_is_missing_above_it(agent: Talks, root: Path) -> None:
    said = await answer(agent, "t", "write new/deep/hello.txt hello wörld\nread new/deep/hello.txt")
    assert said == "The client wrote new/deep/hello.txt.\nhello wörld\n"
    assert (root / "new/deep/hello.txt").read_text(encoding="utf-8") == "hello wörld\n"
    await answer(agent, "again", "write new/deep/hello.txt else")
    assert (root / "new/deep/hello.txt").read_text() == "else\n"


async def test_what_cannot_be_read_or_written_is_said_in_words(
    agent: Talks, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (root / "link.txt").symlink_to(secret)
    (root / "binary").write_bytes(b"\xff\xfe\x00")
    (root / "directory").mkdir()
    for turn_id, prompt, words in (
        ("missing", "read nothing.txt", "does not exist"),
        ("outside", f"read {secret}", "outside"),
        ("above", "read ../secret.txt", "outside"),
        ("link", "read link.txt", "outside"),
        ("write-outside", f"write {secret} changed", "outside"),
        ("write-link", "write link.txt changed", "outside"),
        ("binary", "read binary", "no text in UTF-8"),
        ("directory", "read directory", "not a regular file"),
    ):
        said = await answer(agent, turn_id, prompt)
        assert said.startswith("The client did not"), (turn_id, said)
        assert words in said, (turn_id, said)
    assert secret.read_text() == "secret"


async def test_many_files_at_once_within_bounds(
    stack: Stack, talks: Talks, root: Path, tmp_path: Path
) -> None:
    profile = write_rogue(tmp_path / "profiles", "reads_and_writes")
    await stack.add_runner(profiles_directory=tmp_path / "profiles")
    await talks.create("s", profile=profile)
    told = json.loads(await answer(talks, "t", "go"))
    assert (told["written"], told["read"]) == (40, 40)
    assert told["relative"] == [-32602, "path: 'some.txt' is not absolute"]
    code, words = told["too large"]
    assert (code, "1200000 bytes" in words, "1048576" in words) == (-32602, True, True)
    assert told["large"] == {}
    assert (root / "large.txt").read_text(encoding="utf-8") == "ä" * 500_000


async def test_a_holder_whose_token_is_old_writes_no_file_and_gives_up(
    stack: Stack, talks: Talks, root: Path
) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    until_told = "while [ ! -e go ]; do sleep 0.02; done"
    await talks.start("s", "t", f"say here\nrun {until_told}\nwrite late.txt late\nsleep 600")
    await talks.says("s", "t", "here")
    await execute(stack.database_url, "UPDATE workspace.workspaces SET token = token + 1")
    (root / "go").touch()
    turn = await talks.ended("s", "t")
    assert turn.state == turn_pb2.TURN_STATE_LOST
    assert not (root / "late.txt").exists()
    assert list(runner.executions) == []
