"""The helper by its protocol, over pipes (W6, F6)."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.workspace.docker.exec import frames
from services.workspace.docker.exec.frames import Order, Report
from tests.conditions import eventually
from tests.workspace.docker.exec.driver import NANOSECONDS, Driver, driven, now
from tests.workspace.processes import appears, is_alive, with_argument


@pytest.fixture
async def helper() -> AsyncIterator[Driver]:
    """It waits."""
    async with driven() as driver:
        yield driver


@pytest.fixture
def tag() -> str:
    """For how long the processes of a test sleep: no others do."""
    return f"6{secrets.randbelow(10**8):08}"


async def test_it_greets_with_its_clock_and_what_it_sees(helper: Driver, tmp_path: Path) -> None:
    before, place = now(), tmp_path / "plac\u00e9"
    place.mkdir()
    (link := tmp_path / "link").symlink_to(place)
    ready = await helper.greet(str(link))
    assert before <= ready.now <= now()
    assert ready.seen == (place.stat().st_dev, place.stat().st_ino)


async def test_it_says_that_it_sees_nothing(helper: Driver, tmp_path: Path) -> None:
    assert (await helper.greet(f"{tmp_path}/missing")).seen == (0, 0)


async def test_it_says_how_a_command_ended(helper: Driver) -> None:
    await helper.start("sh", "-c", "echo out; echo err >&2; exit 3")
    heard = await helper.hear_until(Report.END)
    assert (Report.STDOUT, b"out\n") in heard
    assert (Report.STDERR, b"err\n") in heard
    assert [frames.read_dead(payload) for report, payload in heard if report is Report.DEAD] == [
        (3 << 8, False, False)
    ]
    assert await helper.process.wait() == 0


async def test_a_hung_up_helper_leaves_nothing(helper: Driver, tag: str) -> None:
    await helper.start("sh", "-c", f"sleep {tag} & setsid env -i /bin/sleep {tag} & wait")
    await appears(tag, 2)
    helper.hang_up()
    assert await helper.process.wait() == 0
    assert with_argument(tag) == []


async def test_a_helper_that_hears_nothing_ends_its_command_in_time(helper: Driver, tag: str) -> None:
    began = now()
    await helper.start("sh", "-c", f"setsid sleep {tag} & wait", seconds=1)
    await appears(tag)
    status, killed, _ = await helper.dead()
    assert (os.WTERMSIG(status), killed) == (signal.SIGKILL, True)
    assert with_argument(tag) == []
    assert now() - began >= NANOSECONDS
    # Its own time is over, too, with or without an end of file.
    assert await helper.process.wait() == 0


async def test_what_it_hears_makes_it_live_longer_never_shorter(helper: Driver) -> None:
    pid = await helper.start("sleep", "600", seconds=1)
    late = now() + 3 * NANOSECONDS
    helper.say(frames.until(late))
    helper.say(frames.until(now()))
    await helper.dead()
    assert now() >= late
    assert not is_alive(pid)


async def test_a_command_whose_time_is_over_is_not_started(helper: Driver) -> None:
    await helper.greet()
    helper.say(frames.start("/tmp", ("sleep", "600"), {}, until=now(), terminal=None))
    _, payload = (await helper.hear_until(Report.FAILED))[-1]
    assert frames.read_number(payload) == errno.ETIME
    assert await helper.process.wait() == 0


async def test_it_lives_to_say_that_all_are_dead_when_nobody_reads(helper: Driver) -> None:
    await helper.start("sh", "-c", "yes & sleep 600")
    helper.tell(Order.KILL)
    # The output is cut where the window ends, and the rest waits for who reads it.
    assert (await helper.dead())[1]


async def test_output_waits_for_room(helper: Driver) -> None:
    size = 3 * frames.OUTPUT_WINDOW
    await helper.start("head", "-c", str(size), "/dev/zero")
    received = 0
    while received < frames.OUTPUT_WINDOW:
        report, payload = await _some(helper)
        assert report is Report.STDOUT
        received += len(payload)
    assert received == frames.OUTPUT_WINDOW
    helper.tell(Order.MARK)
    # The answer stands behind no output, as there is no room for any.
    assert (await _some(helper))[0] is Report.MARKED
    helper.say(frames.number(Order.READ, size))
    heard = await helper.hear_until(Report.END)
    assert received + sum(len(payload) for report, payload in heard if report is Report.STDOUT) == size


async def test_input_beyond_the_window_is_not_listened_to(helper: Driver) -> None:
    await helper.start("sleep", "600")
    for _ in range(frames.STDIN_WINDOW // frames.LONGEST_PIECE + 3):
        helper.tell(Order.STDIN, bytes(frames.LONGEST_PIECE))
    assert await helper.process.wait() == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        frames.frame(Order.STDIN, b"too early"),
        b"?" + struct.pack(">I", 0),
        frames.frame(Order.START, b"short"),
        frames.frame(Order.START, struct.pack(">QBHHIII", 1 << 62, 0, 0, 0, 0, 5, 5) + b"a\0b\0"),
        frames.frame(Order.START, struct.pack(">QBHHIII", 1 << 62, 0, 0, 0, 0, 2**32 - 1, 1) + b"a\0"),
        frames.frame(Order.UNTIL, b"1"),
        b"S\xff\xff\xff\xff",
    ],
)
async def test_nonsense_ends_it(helper: Driver, nonsense: bytes) -> None:
    await helper.greet()
    helper.say(nonsense)
    await helper.process.wait()
    assert helper.process.returncode == 0


async def test_nonsense_ends_its_command_as_well(helper: Driver, tag: str) -> None:
    await helper.start("sleep", tag)
    await appears(tag)
    helper.say(b"?" + struct.pack(">I", 0))
    await helper.process.wait()
    assert with_argument(tag) == []


async def test_frames_may_come_byte_by_byte(helper: Driver) -> None:
    await helper.start("cat")
    for byte in frames.frame(Order.STDIN, b"slowly") + frames.frame(Order.CLOSE):
        helper.say(bytes([byte]))
        await asyncio.sleep(0)
    heard = await helper.hear_until(Report.END)
    assert b"".join(payload for report, payload in heard if report is Report.STDOUT) == b"slowly"


async def test_a_killed_helper_takes_its_command_along(helper: Driver) -> None:
    pid = await helper.start("sleep", "600")
    helper.process.kill()
    await eventually(lambda: not is_alive(pid))


async def _some(helper: Driver) -> tuple[Report, bytes]:
    frame = await helper.hear()
    assert frame is not None
    return frame
