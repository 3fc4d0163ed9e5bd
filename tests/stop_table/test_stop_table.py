"""Stops at every moment, in every way, on the real services with the demo agent (S1 to S11).

What is expected is in expected.md. A cell that does not reach its moment fails.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.stop_table.cells import Harbour, play
from tests.stop_table.moments import MOMENTS, Moment
from tests.stop_table.ordering import COLUMNS
from tests.stop_table.table import Line, expected
from tests.system.service_process import ServiceProcess

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

BY_NAME = {moment.name: moment for moment in MOMENTS}
USUAL = [moment for moment in MOMENTS if not (moment.is_killed or moment.is_hung)]
LEASE = 2.5


def check(moment: Moment, seen: list[Line]) -> None:
    """Compare with the table as it is written, and tell all lines that differ."""
    wanted = expected()[moment.name]
    assert list(wanted) == [column.name for column in COLUMNS]
    wrong = [f"- {wanted[line.stop]}\n+ {line}" for line in seen if line != wanted[line.stop]]
    assert not wrong, f"{moment.name}, expected (-) and seen (+):\n" + "\n".join(wrong)


async def test_the_table_is_complete() -> None:
    assert list(expected()) == list(BY_NAME)


@pytest.mark.parametrize("moment", USUAL, ids=lambda moment: moment.name)
async def test_stops_at(usual: Harbour, moment: Moment) -> None:
    check(moment, await play(usual, moment, COLUMNS))


async def test_stops_of_a_runner_that_is_dead(impatient: Harbour, tmp_path: Path) -> None:
    stack = impatient.stack
    runner = ServiceProcess(
        "runner",
        tmp_path / "runner.log",
        *("--name", "doomed", "--lease-ttl", str(LEASE)),
        *("--owner-address", stack.owner.endpoint, "--workspace-address", stack.workspace.endpoint),
        *("--journal-address", stack.session.service.journal_endpoint),
        failpoints=impatient.gates.failpoints,
    )

    async def kill() -> None:
        runner.send(signal.SIGKILL)
        await runner.exit_code()

    async def replace() -> None:
        await stack.add_runner("heir")

    moment = BY_NAME["runner dead"]
    async with runner:
        await runner.logged("registered")
        seen = await play(impatient, moment, COLUMNS, kill, replace)
    await stack.runners.pop("heir").stop()
    check(moment, seen)


async def test_stops_of_a_runner_that_hangs(impatient: Harbour) -> None:
    await impatient.stack.add_runner("hangs")
    moment = BY_NAME["runner hung"]
    check(moment, await play(impatient, moment, COLUMNS))
    await impatient.stack.runners.pop("hangs").stop()
