"""`make helper`: what is heard of it. A small tree stands in for this one, and a script for the compiler."""

import shutil
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "tools" / "helper.py"

COMPILER = """#!/bin/sh
for last; do :; done
echo program > "$last"
"""


def tree(base: Path) -> Path:
    """The tool in it, where the compiler has been fetched already."""
    source, tools = base / "services/workspace/docker/exec/helper", base / "tools"
    compiler = base / "build/helper/ziglang/zig"
    for directory in (source, tools, compiler.parent):
        directory.mkdir(parents=True)
    (source / "main.c").write_text("")
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    for lock in (tools / "helper.lock", base / "build/helper/installed.lock"):
        lock.write_text("")
    return Path(shutil.copy(TOOL, tools))


def run(tool: Path) -> list[str]:
    ended = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def test_it_says_how_long_it_takes_before_it_takes_long_and_nothing_when_there_is_nothing_to_do(
    tmp_path: Path,
) -> None:
    tool = tree(tmp_path)
    first, last = run(tool)
    assert first == "building the helper of commands in containers, which takes 1 to 2 minutes, once"
    assert last == "built the helper for x86_64, aarch64"
    assert run(tool) == []
