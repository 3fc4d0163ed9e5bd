"""Exit codes: what scripts rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from moorage.common.v1 import turn_pb2

from services.cli.exits import SIGNALLED, Exit, exit_of

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (turn_pb2.TURN_STATE_COMPLETED, 0),
        (turn_pb2.TURN_STATE_FAILED, 1),
        (turn_pb2.TURN_STATE_STOPPED, 3),
        (turn_pb2.TURN_STATE_LOST, 4),
    ],
)
def test_each_ending_of_a_turn_has_its_own(state: turn_pb2.TurnState.ValueType, code: int) -> None:
    assert exit_of(state) == code


def test_the_readme_lists_them_all() -> None:
    table = README.read_text(encoding="utf-8").partition("| exit code |")[2].partition("\n\n")[0]
    listed = {int(code) for row in table.splitlines()[2:] for code in re.findall(r"\d+", row.split("|")[1])}
    assert listed == {*Exit, SIGNALLED + 2, SIGNALLED + 15}
