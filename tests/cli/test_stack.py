"""The four services as one: what happens when they cannot start where they should."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from services.cli import stack
from services.cli.database import DatabaseAddress
from services.cli.ports import choose
from services.cli.stack import PORTS, StackOptions, run_stack, workspaces_of
from tests.cli.programs import Place

pytestmark = pytest.mark.timeout(180)

ANY = dict.fromkeys(PORTS, "127.0.0.1:0")


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Takes the port of the session service between choice and start, once."""
    waiting = ["for it"]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def choose_in_vain(preferred: Mapping[str, int], fixed: Mapping[str, str]) -> dict[str, str]:
            addresses = choose(preferred, fixed)
            if preferred and waiting:
                waiting.pop()
                addresses["session"] = address
            return addresses

        monkeypatch.setattr(stack, "choose", choose_in_vain)
        yield waiting


async def test_a_port_that_is_lost_in_a_race_is_replaced(
    place: Place, database_url: str, thief: list[str]
) -> None:
    options = StackOptions(place.work, place.state_home, DatabaseAddress(database_url), ANY)
    async with run_stack(options) as running:
        assert thief == []
        assert len(running.supervisor.pids) == 4


def test_workspaces_do_not_lie_in_roots_home_which_images_close() -> None:
    assert workspaces_of(Path("/home/me/state/work-1")) == Path("/home/me/state/work-1/workspaces")
    assert workspaces_of(Path("/root/state/work-1")) == Path("/var/lib/moorage-workspaces/work-1")
