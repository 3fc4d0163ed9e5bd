"""Exec: what goes in, what comes out, and how it ends (W6)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from tests.workspace.instances import Client, Holder, Machine, duration
from tests.workspace.processes import is_alive


@pytest.fixture
async def grant(client: Client, holder: Holder, machine: Machine) -> Grant:
    """Of the session whose workspace is ready."""
    await client.adopt(machine.supplied())
    return await holder.acquire()


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("exit 0", ("exit_code", 0)),
        ("exit 7", ("exit_code", 7)),
        ("exit 137", ("exit_code", 137)),
        ("kill -TERM $$", ("signal", "SIGTERM")),
        ("kill -KILL $$", ("signal", "SIGKILL")),
        ("kill -35 $$", ("signal", "SIGRTMIN+1")),
    ],
)
async def test_an_end_is_an_exit_code_or_a_signal(
    client: Client, grant: Grant, script: str, how: tuple[str, object]
) -> None:
    result = await client.exec(grant, "sh", "-c", script).run()
    assert result.error is None
    assert result.how == how


async def test_a_timeout_is_neither(client: Client, grant: Grant) -> None:
    result = await client.exec(grant, "sleep", "600", timeout=duration(0.2)).run()
    kind, value = result.how
    assert kind == "timeout"
    assert value.after == duration(0.2)


async def test_a_command_that_ends_in_time_is_not_timed_out(client: Client, grant: Grant) -> None:
    result = await client.exec(grant, "sh", "-c", "exit 3", timeout=duration(60)).run()
    assert result.how == ("exit_code", 3)


async def test_output_and_errors_are_apart(client: Client, grant: Grant) -> None:
    result = await client.exec(grant, "sh", "-c", "echo out; echo err >&2").run()
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


async def test_input_is_given_whole_and_ends(client: Client, grant: Grant) -> None:
    data = os.urandom(3_000_000)
    result = await client.exec(grant, "cat").run(data)
    assert result.stdout == data
    assert result.how == ("exit_code", 0)


async def test_without_the_end_of_input_a_command_waits(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "cat") as stream:
        await stream.write(b"one\n")
        assert await stream.read_until(b"one\n") == b"one\n"
        assert is_alive(stream.pid)


async def test_half_closing_the_stream_is_not_the_end_of_input(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sh", "-c", "sleep 0.3; timeout 0.3 cat; echo $?") as stream:
        await stream.call.done_writing()
        assert (await stream.result()).stdout == b"124\n"


async def test_input_that_nobody_reads_is_dropped(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sh", "-c", "exec 0<&-; echo closed; sleep 0.2; exit 4") as stream:
        await stream.read_until(b"closed")
        await stream.write(b"x" * 1_000_000)
        await stream.close_stdin()
        assert (await stream.result()).how == ("exit_code", 4)


async def test_a_round_trip_is_quick(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "cat") as stream:
        times = []
        for number in range(50):
            started = time.perf_counter()
            await stream.write(b"%d\n" % number)
            await stream.read_until(b"%d\n" % number)
            times.append(time.perf_counter() - started)
    assert sorted(times)[25] < 0.2


async def test_only_declared_variables_are_there(
    client: Client, grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await client.exec(
        grant, "/usr/bin/env", environment={"A": "1", "PATH": "/mine"}, inherit_environment=["HOME", "ABSENT"]
    ).run()
    variables = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    marker = variables.pop("MOORAGE_EXEC")
    assert variables == {"A": "1", "PATH": "/mine", "HOME": os.environ["HOME"]}
    assert len(marker.split("/")) == 4


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"environment": {"MOORAGE_EXEC": "x"}}, "start.environment[MOORAGE_EXEC]"),
        ({"environment": {"A=B": "x"}}, "start.environment[A=B]"),
        ({"environment": {"": "x"}}, "start.environment[]"),
        ({"environment": {"A": "a\0b"}}, "start.environment[A]"),
        ({"inherit_environment": ["MOORAGE_DATABASE_URL"]}, "start.inherit_environment"),
        ({"timeout": duration(0)}, "start.timeout"),
        ({"timeout": duration(-1)}, "start.timeout"),
        ({"terminal": workspace_pb2.TerminalSize(columns=80)}, "start.terminal.rows"),
        ({"directory": "a\0b"}, "start.directory"),
        ({"project": "No"}, "start.project"),
        ({"workspace_id": "a/b"}, "start.workspace_id"),
    ],
)
async def test_bad_fields_are_named(
    client: Client, grant: Grant, start: dict[str, object], field: str
) -> None:
    refusal = await client.exec(grant, "true", **start).refusal()  # type: ignore[arg-type]
    assert refusal.reason_name == "INVALID_FIELD"
    assert [violation.field for violation in refusal.violations] == [field]


@pytest.mark.parametrize("command", [[], [""], ["a\0b"]])
async def test_a_command_has_a_program(client: Client, grant: Grant, command: list[str]) -> None:
    refusal = await client.exec(grant, *command).refusal()
    assert refusal.reason_name == "INVALID_FIELD"
    assert refusal.violations[0].field.startswith("start.command")


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("no-such-program", "No such file or directory"),
        ("./no-such-program", "No such file or directory"),
        ("/etc/passwd", "Permission denied"),
        ("/", "Permission denied"),
    ],
)
async def test_what_cannot_be_started(client: Client, grant: Grant, program: str, cause: str) -> None:
    refusal = await client.exec(grant, program).refusal()
    assert refusal.reason_name == "EXEC_START_FAILED"
    assert refusal.metadata == {"command": program, "cause": cause}


async def test_arguments_that_are_too_long(client: Client, grant: Grant) -> None:
    refusal = await client.exec(grant, "true", "x" * 200_000).refusal()
    assert refusal.reason_name == "EXEC_START_FAILED"
    assert refusal.metadata["cause"] == "Argument list too long"


async def test_the_directory_is_the_root_or_inside_it(client: Client, grant: Grant, machine: Machine) -> None:
    root = machine.supplied()
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to("a")
    for directory, expected in (
        ("", root),
        (".", root),
        ("a/b", root / "a/b"),
        (str(root / "a"), root / "a"),
        ("a/..", root),
        ("link/b", root / "a/b"),
    ):
        result = await client.exec(grant, "pwd", directory=directory).run()
        assert result.stdout.decode() == f"{expected}\n"


@pytest.mark.parametrize("directory", ["..", "/", "out", "out/inner", "a/../../other"])
async def test_the_directory_never_leads_out(
    client: Client, grant: Grant, machine: Machine, directory: str
) -> None:
    (machine.directory / "elsewhere" / "inner").mkdir(parents=True)
    (machine.root / "other").mkdir()
    (machine.supplied() / "a").mkdir()
    (machine.supplied() / "out").symlink_to(machine.directory / "elsewhere")
    refusal = await client.exec(grant, "pwd", directory=directory).refusal()
    assert refusal.reason_name == "PATH_OUTSIDE_ROOT"
    assert [violation.field for violation in refusal.violations] == ["start.directory"]


@pytest.mark.parametrize("directory", ["missing", "file", "x" * 300])
async def test_the_directory_must_be_one(
    client: Client, grant: Grant, machine: Machine, directory: str
) -> None:
    (machine.supplied() / "file").touch()
    refusal = await client.exec(grant, "pwd", directory=directory).refusal()
    assert refusal.reason_name == "INVALID_FIELD"
    assert [violation.field for violation in refusal.violations] == ["start.directory"]


async def test_a_workspace_that_became_a_link_is_not_followed(
    client: Client, grant: Grant, machine: Machine
) -> None:
    machine.supplied().rmdir()
    (machine.directory / "elsewhere").mkdir()
    (machine.root / "code").symlink_to(machine.directory / "elsewhere")
    refusal = await client.exec(grant, "pwd").refusal()
    assert refusal.reason_name == "WORKSPACE_NOT_READY"


async def test_signals_reach_the_whole_group(client: Client, grant: Grant) -> None:
    script = 'trap "echo parent; exit 5" USR1; (trap "echo child; exit" USR1; echo r; while :; do sleep 0.01; done) & while :; do wait; done'
    async with client.exec(grant, "sh", "-c", script) as stream:
        await stream.read_until(b"r\n")
        await stream.signal("SIGUSR1")
        result = await stream.result()
    assert set(result.stdout.split()) >= {b"parent"}
    assert result.how == ("exit_code", 5)


async def test_a_signal_of_the_caller_is_told_as_one(client: Client, grant: Grant) -> None:
    async with client.exec(grant, "sleep", "600") as stream:
        await stream.signal("SIGKILL")
        assert (await stream.result()).how == ("signal", "SIGKILL")


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ({"signal": workspace_pb2.ExecSignal(name="SIGNOTHING")}, "signal.name"),
        ({"signal": workspace_pb2.ExecSignal(name="9")}, "signal.name"),
        ({"resize": workspace_pb2.TerminalSize(columns=1, rows=1)}, "resize"),
        ({"stdin": b"x" * 262_145}, "stdin"),
        ({"start": workspace_pb2.ExecStart()}, "start"),
        ({}, "message"),
    ],
)
async def test_a_frame_that_makes_no_sense_ends_the_command(
    client: Client, grant: Grant, frame: dict[str, object], field: str
) -> None:
    async with client.exec(grant, "sleep", "600") as stream:
        await stream.send(**frame)
        error = (await stream.result()).error
        assert error is not None
        assert [violation.field for violation in error.violations] == [field]
        assert not is_alive(stream.pid)


async def test_the_first_message_is_start(client: Client) -> None:
    call = client.stub.Exec()
    await call.write(workspace_pb2.ExecRequest(stdin=b"x"))
    status = await call.code()
    assert status.name == "INVALID_ARGUMENT"


async def test_a_stream_without_messages_is_refused(client: Client) -> None:
    call = client.stub.Exec()
    await call.done_writing()
    assert (await call.code()).name == "INVALID_ARGUMENT"


async def test_a_terminal(client: Client, grant: Grant) -> None:
    size = workspace_pb2.TerminalSize(columns=100, rows=30)
    async with client.exec(
        grant, "sh", "-c", "tty >&2; stty size; read x; stty size; read y; exit 6", terminal=size
    ) as stream:
        await stream.read_until(b"30 100\r\n")
        await stream.send(resize=workspace_pb2.TerminalSize(columns=50, rows=20))
        await stream.write(b"x\n")
        await stream.read_until(b"20 50\r\n")
        await stream.close_stdin()
        result = await stream.result()
    assert result.stderr == b""
    assert result.how == ("exit_code", 6)


async def test_a_terminal_tells_its_processes_of_a_new_size(client: Client, grant: Grant) -> None:
    size = workspace_pb2.TerminalSize(columns=80, rows=24)
    script = 'trap "stty size; exit 0" WINCH; echo ready; while :; do sleep 0.01; done'
    async with client.exec(grant, "sh", "-c", script, terminal=size) as stream:
        await stream.read_until(b"ready")
        await stream.send(resize=workspace_pb2.TerminalSize(columns=81, rows=25))
        assert b"25 81" in (await stream.result()).stdout


async def test_what_a_command_leaves_running_dies_with_it(
    client: Client, grant: Grant, machine: Machine
) -> None:
    pids = machine.supplied() / "pids"
    script = "sleep 600 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 600' & sleep 0.1; exit 0"
    result = await client.exec(grant, "sh", "-c", script).run()
    assert result.how == ("exit_code", 0)
    assert len(_pids(pids)) == 2
    assert not any(map(is_alive, _pids(pids)))


def _pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]
