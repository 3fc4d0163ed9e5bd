"""How commands end, with each provider: an exit code or a signal, and nothing is left (W6)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from services.workspace.exec.process import Outcome, ProcessLost, StartFailed
from tests.workspace.conformance.places import PATH, Place, finish, read_until, run, start
from tests.workspace.processes import appears, with_argument


@pytest.mark.parametrize(
    ("script", "exit_code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("exit 137", 137, None),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("kill -KILL $$", None, signal.SIGKILL),
        ("kill -35 $$", None, 35),
    ],
)
async def test_an_end_is_an_exit_code_or_a_signal(
    place: Place, script: str, exit_code: int | None, number: int | None
) -> None:
    assert (await run(place, "sh", "-c", script)).outcome == Outcome(exit_code, number, killed=False)


async def test_output_and_errors_are_apart(place: Place) -> None:
    ran = await run(place, "sh", "-c", "echo out; echo err >&2")
    assert (ran.stdout, ran.stderr) == (b"out\n", b"err\n")


async def test_only_what_is_declared_is_in_the_environment(place: Place) -> None:
    ran = await run(place, "env", environment={"PATH": PATH, "A": "1 2\n3", "EMPTY": ""})
    assert ran.stdout.decode().split("\n") == [f"PATH={PATH}", "A=1 2", "3", "EMPTY=", ""]


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("no-such-program", "No such file or directory"),
        ("./no-such-program", "No such file or directory"),
        ("/etc/passwd", "Permission denied"),
        ("/", "Permission denied"),
    ],
)
async def test_what_cannot_be_started_says_why(place: Place, program: str, cause: str) -> None:
    process = await place.spawn()
    with pytest.raises(StartFailed, match=f"^{cause}$"):
        await process.start((program,), {"PATH": PATH}, terminal=False)
    assert (await process.ended).killed


async def test_arguments_that_are_too_long(place: Place) -> None:
    process = await place.spawn()
    with pytest.raises(StartFailed, match="Argument list too long"):
        await process.start(("true", "x" * 200_000), {"PATH": PATH}, terminal=False)


async def test_a_request_larger_than_every_buffer(place: Place) -> None:
    process = await place.spawn()
    environment = {f"V{number}": "x" * 100_000 for number in range(15)}
    await process.start(("/bin/sh", "-c", "exit ${#V14}"), environment, terminal=False)
    assert (await process.ended).exit_code == 100_000 % 256


async def test_what_a_command_leaves_dies_with_it(place: Place, tag: str) -> None:
    script = f"sleep {tag} & setsid sleep {tag} & setsid env -i sleep {tag} & sleep 0.2; exit 3"
    assert (await run(place, "sh", "-c", script)).outcome.exit_code == 3
    assert with_argument(tag) == []


async def test_a_kill_ends_everything_wherever_it_went(place: Place, tag: str) -> None:
    script = (
        f"sleep {tag} & setsid sh -c 'sleep {tag}; :' & setsid env -i setsid /bin/sleep {tag} & sleep {tag}"
    )
    process = await start(place, "sh", "-c", script)
    await appears(tag, 4)
    process.kill()
    assert await process.ended == Outcome(None, signal.SIGKILL, killed=True)
    assert with_argument(tag) == []


async def test_a_kill_ends_what_is_stopped(place: Place, tag: str) -> None:
    process = await start(place, "sh", "-c", f"sleep {tag} & wait")
    await appears(tag)
    process.send_signal(signal.SIGSTOP)
    process.kill()
    assert (await process.ended).killed
    assert with_argument(tag) == []


async def test_a_kill_ends_what_multiplies(place: Place, tag: str) -> None:
    script = f"while :; do setsid sh -c 'sleep {tag} & sleep {tag}' & sleep 0.01; done"
    process = await start(place, "sh", "-c", script)
    await appears(tag, 20)
    process.kill()
    await process.ended
    assert with_argument(tag) == []


async def test_a_process_that_is_killed_before_it_starts_never_runs(place: Place, tag: str) -> None:
    process = await place.spawn()
    process.kill()
    with pytest.raises(StartFailed):
        await process.start(("sleep", tag), {"PATH": PATH}, terminal=False)
    assert (await process.ended).killed
    assert with_argument(tag) == []


async def test_a_kill_that_comes_too_late_changes_no_outcome(place: Place) -> None:
    process = await start(place, "sh", "-c", "exit 9")
    await process.ended
    process.kill()
    process.send_signal(signal.SIGTERM)
    assert await process.ended == Outcome(9, None, killed=False)


async def test_a_process_that_exits_while_it_is_killed_tells_one_end(place: Place) -> None:
    for _ in range(10):
        process = await start(place, "sh", "-c", "exit 9")
        process.kill()
        assert await process.ended in (
            Outcome(9, None, killed=False),
            Outcome(None, signal.SIGKILL, killed=True),
        )


async def test_a_signal_reaches_the_whole_group(place: Place) -> None:
    script = (
        'trap "wait; echo parent; exit 5" USR1; '
        '(trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done) & '
        "while :; do sleep 0.01; done"
    )
    process = await start(place, "sh", "-c", script)
    assert await read_until(process.streams.stdout, b"ready\n")
    process.send_signal(signal.SIGUSR1)
    ran = await finish(process)
    assert set(ran.stdout.split()) == {b"child", b"parent"}
    assert ran.outcome == Outcome(5, None, killed=False)


async def test_fifty_at_the_same_time(place: Place) -> None:
    results = await asyncio.gather(*(run(place, "sh", "-c", f"exit {number}") for number in range(50)))
    assert [ran.outcome.exit_code for ran in results] == list(range(50))


async def test_nobody_answers_once_the_command_has_ended(place: Place) -> None:
    process = await start(place, "sleep", "600")
    await process.mark()
    process.kill()
    with pytest.raises(ProcessLost):
        await process.reap()
    assert (await process.ended).killed
    with pytest.raises(ProcessLost):
        await process.mark()
