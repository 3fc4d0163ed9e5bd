"""What is quoted of the log of a service that ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cli.logfiles import LogFile


def entry(level: str, event: str, **more: str) -> str:
    """A line of a service's log."""
    return json.dumps({"level": level, "event": event, **more})


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        ([entry("info", "serving"), entry("debug", "called")], []),
        ([entry("info", "serving"), entry("warning", "slow", error="timeout")], ["warning slow timeout"]),
        (
            ["Traceback (most recent call last):", "ValueError: no"],
            ["Traceback (most recent call last):", "ValueError: no"],
        ),
        ([entry("error", str(number)) for number in range(9)], [f"error {number}" for number in range(4, 9)]),
    ],
)
def test_only_what_warns_is_quoted_and_little_of_it(
    tmp_path: Path, lines: list[str], quoted: list[str]
) -> None:
    log = LogFile(tmp_path / "service.log")
    with log.open() as output:
        output.write("\n".join(lines).encode())
    first, *rest = log.last_words().splitlines()
    assert str(log.path) in first
    assert [line.strip() for line in rest] == quoted


def test_the_cause_that_the_service_gave_is_enough(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "service.log")
    with log.open() as output:
        output.write("\n".join([entry("error", "before"), entry("critical", "no database")]).encode())
    assert log.last_words() == f"no database (log: {log.path})"
