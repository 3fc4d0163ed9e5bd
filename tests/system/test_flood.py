"""An agent that says more than anybody can take at once: all of it arrives, and no service grows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moorage.common.v1 import content_pb2, turn_pb2
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.channels import open_channel
from tests.cli.programs import MOORAGE, Place, up
from tests.cli.trees import descendants
from tests.conditions import eventually
from tests.runner.profiles import ROGUES, write_profile

pytestmark = pytest.mark.timeout(300)

SERVICES = ("owner", "workspace", "session", "runner")
UPDATES = 100_000
MIB = 1024 * 1024
# What each service may grow by while it passes on 10 MB in 100,000 updates.
MOST = 32 * MIB


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory to serve."""
    place = Place.below(tmp_path)
    yield place
    place.clean()


async def test_100_000_updates_arrive_and_every_service_stays_small(place: Place, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    for name, count in (("small", 2000), ("large", UPDATES)):
        write_profile(profiles, name, "{python}", "-I", "-S", str(ROGUES), "deluge", str(count))
    with up(place, MOORAGE_RUNNER_PROFILES_DIRECTORY=str(profiles)) as (program, where):
        async with open_channel(where["session"]) as channel:
            sessions = SessionServiceStub(channel)
            assert await told(sessions, "small") == 1000
            memory = Memory(services_of(program.process.pid))
            assert await told(sessions, "large") == UPDATES // 2
        memory.check(MOST)


async def test_100_mb_pass_through_small_services_and_a_small_client(place: Place, tmp_path: Path) -> None:
    profiles, log = tmp_path / "profiles", tmp_path / "log"
    for name, count in (("small", 20), ("large", 1000)):
        torrent = ("{python}", "-I", "-S", str(ROGUES), "torrent", str(count), str(log))
        write_profile(profiles, name, *torrent)
    with up(place, MOORAGE_RUNNER_PROFILES_DIRECTORY=str(profiles)) as (program, _):
        for name in ("small", "large"):
            made = place.moorage("session", "create", name, "--profile", name)
            assert made.returncode == 0, made.stderr
        with client(place, "small") as small:
            assert small.wait() == 0
        memory = Memory(services_of(program.process.pid))
        with client(place, "large") as large:
            # It has loaded what it needs once something has passed.
            await eventually(lambda: len(log.read_text().splitlines()) > 60, what="4 MB have passed")
            memory.add("client", large.pid)
            await eventually(lambda: not memory.look("client"), within=200, what="the turn has ended")
            assert large.wait() == 0
        memory.check(2 * MOST)
    assert len(log.read_text(encoding="utf-8").splitlines()) == 1020


class Memory:
    """What processes have grown by, at most, since they were added."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._most: dict[str, int] = {}
        for name, pid in pids.items():
            self.add(name, pid)

    def add(self, name: str, pid: int) -> None:
        """From now on."""
        self._pids[name], self._before[name] = pid, resident(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
        self.look(name)

    def look(self, name: str) -> bool:
        """Remember how much it has had so far; False when it is gone."""
        try:
            self._most[name] = resident(self._pids[name], "VmHWM")
        except (OSError, StopIteration):
            return False
        return True

    def check(self, most: int) -> None:
        """None has grown by more."""
        for name in self._pids:
            self.look(name)
        grown = {name: (self._most[name] - self._before[name]) / MIB for name in self._pids}
        told = {name: f"{size:.1f} MiB" for name, size in grown.items()}
        assert max(grown.values()) * MIB < most, told


@contextmanager
def client(place: Place, session_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """`moorage run` in a session, whose output nobody keeps."""
    process = subprocess.Popen(
        [*MOORAGE, "run", "go", "--session", session_id, "--json"],
        cwd=place.work,
        env=place.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def told(sessions: Any, profile: str) -> int:
    """How many pieces of text came, in a session named like the profile; each of them is checked."""
    agent = session_pb2.AgentSpec(profile=profile)
    await sessions.CreateSession(session_pb2.CreateSessionRequest(session_id=profile, agent=agent))
    prompt = [content_pb2.ContentBlock(text=content_pb2.TextContent(text="go"))]
    request = session_pb2.RunTurnRequest(session_id=profile, turn_id="t", prompt=prompt)
    pieces, updates = 0, -1
    async for event in sessions.RunTurn(request):
        body = event.record.body
        for piece in body.agent_message.content.text.text.split(" x")[:-1]:
            assert int(piece.strip("x ")) == pieces
            pieces += 1
        if body.HasField("tool_update"):
            assert int(body.tool_update.raw_output) == updates + 1
            updates += 1
        if event.HasField("ended"):
            assert event.ended.state == turn_pb2.TURN_STATE_COMPLETED, event.ended
    assert updates == pieces - 1
    return pieces


def services_of(pid: int) -> dict[str, int]:
    """The process of each service below this one."""
    found = descendants(pid).items()
    return {
        name: next(child for child, command in found if f"-m services.{name}" in command) for name in SERVICES
    }


def resident(pid: int, field: str) -> int:
    """Bytes of memory; VmHWM is the most since it was reset."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024
