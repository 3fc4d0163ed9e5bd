"""Signals end a command by cancelling it; what it does then is its own matter."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.cli.interrupts import Interrupted, interruptible

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def heard() -> Iterator[None]:
    """None of them is ignored, whoever started the tests; their handlers are as they were after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    usual = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    after = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == usual


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_cancels_the_work_and_is_told(heard: None, number: signal.Signals) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    with pytest.raises(Interrupted) as caught:
        await interruptible(work)
    assert caught.value.number == number
    assert cleaned == ["up"]


async def test_a_second_signal_interrupts_the_cleaning_and_the_first_is_told(heard: None) -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append("cleaning")
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                steps.append("hurrying")
            raise

    with pytest.raises(Interrupted) as caught:
        await interruptible(work)
    assert caught.value.number == signal.SIGINT
    assert steps == ["cleaning", "hurrying"]


async def test_work_that_ends_all_the_same_gives_its_result(heard: None) -> None:
    async def work() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return 7

    assert await interruptible(work) == 7


async def test_a_cancellation_from_elsewhere_is_no_interruption(heard: None) -> None:
    working = asyncio.ensure_future(interruptible(asyncio.Event().wait))
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


def test_what_the_caller_ignores_stays_ignored() -> None:
    program = """
import asyncio, os, signal
from services.cli.interrupts import interruptible
async def work():
    os.kill(os.getpid(), signal.SIGHUP)
    return "went on"
print(asyncio.run(interruptible(work)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "went on\n")
