"""Docker: from a wish to a running command, a command's round trip, bytes, against the engine's own command.

Owner, workspace service, their PostgreSQL (fsync on) and the engine share this machine. The
references are `docker run -d` and `docker exec`, and for a round trip also the engine's interface
from a warm client. Each value is the median of a few.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from moorage.common.v1.grant_pb2 import Grant

from bench.harness.dock import BareEngine, Dock, dock, why_not
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.sampling import duration, interleaved

# For each second of work.
_ROUND_TRIPS: Final = 5
_CREATIONS: Final = 1
_BYTES: Final = 64 * 1024 * 1024

Step = Callable[[], Awaitable[object]]


async def measure(effort: Effort) -> Report:
    """All of it."""
    report = Report()
    if cause := await asyncio.to_thread(why_not):
        report.notes.append(f"containers were not measured: {cause}")
        return report
    with scratch() as directory:
        async with dock(directory) as (ours, bare):
            session_id, grant = await ours.lease()
            await ours.provision(session_id)
            container_id = await bare.run()
            try:
                await _measure_round_trips(report, effort, (ours, session_id, grant), (bare, container_id))
                await _measure_bytes(report, effort, (ours, session_id, grant), (bare, container_id))
                await _measure_provisioning(report, effort, ours, bare)
            finally:
                await bare.remove(container_id)
                await ours.remove(session_id)
    return report


async def _measure_round_trips(
    report: Report, effort: Effort, ours: tuple[Dock, str, Grant], bare: tuple[BareEngine, str]
) -> None:
    times = max(1, round(effort.seconds * _ROUND_TRIPS))
    dock, session_id, grant = ours
    engine, container_id = bare
    values = await interleaved(
        effort.rounds,
        ours=partial(_median, times, partial(dock.run, session_id, grant, "true")),
        command=partial(_median, times, partial(engine.command, "exec", container_id, "true")),
        interface=partial(_median, times, partial(engine.exec, container_id, ["true"])),
    )
    report.add(
        "exec_round_trip",
        "ms",
        _milliseconds(values["ours"]),
        _milliseconds(values["command"]),
        against="docker exec",
    )
    report.add(
        "exec_round_trip_by_interface",
        "ms",
        _milliseconds(values["ours"]),
        _milliseconds(values["interface"]),
        against="the engine's interface, from a warm client",
    )


async def _measure_bytes(
    report: Report, effort: Effort, ours: tuple[Dock, str, Grant], bare: tuple[BareEngine, str]
) -> None:
    dock, session_id, grant = ours
    engine, container_id = bare
    command = ("head", "-c", str(_BYTES), "/dev/zero")
    values = await interleaved(
        effort.rounds,
        ours=partial(_rate, partial(dock.run, session_id, grant, *command)),
        bare=partial(_rate, partial(engine.command, "exec", container_id, *command)),
    )
    report.add("exec_output", "MB/s", values["ours"], values["bare"], against="docker exec")


async def _measure_provisioning(report: Report, effort: Effort, ours: Dock, bare: BareEngine) -> None:
    times = max(1, round(effort.seconds * _CREATIONS))
    values = await interleaved(
        effort.rounds,
        ours=partial(_median_of, times, partial(_provision, ours)),
        bare=partial(_median_of, times, partial(_create, bare)),
    )
    report.add(
        "provision",
        "ms",
        _milliseconds(values["ours"]),
        _milliseconds(values["bare"]),
        against="docker run -d and docker exec",
    )


async def _provision(ours: Dock) -> float:
    """Seconds from the wish to the end of the first command."""
    session_id, grant = await ours.lease()

    async def work() -> None:
        await ours.provision(session_id)
        await ours.run(session_id, grant, "true")

    try:
        return await duration(work())
    finally:
        await ours.remove(session_id)


async def _create(bare: BareEngine) -> float:
    """The same with the engine's own command."""
    began = time.perf_counter()
    container_id = await bare.run()
    try:
        await bare.command("exec", container_id, "true")
        return time.perf_counter() - began
    finally:
        await bare.remove(container_id)


async def _rate(step: Step) -> float:
    """Megabytes a second."""
    return _BYTES / 1e6 / await duration(step())


async def _median(times: int, step: Step) -> float:
    return await _median_of(times, lambda: duration(step()))


async def _median_of(times: int, step: Callable[[], Awaitable[float]]) -> float:
    return statistics.median([await step() for _ in range(times)])


def _milliseconds(seconds: list[float]) -> list[float]:
    return [each * 1000 for each in seconds]
