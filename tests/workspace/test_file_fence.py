"""File writes show a grant like everything else that changes a workspace (F4, F5)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant

from services.common import failpoints
from services.workspace.exec.execs import SessionKey
from services.workspace.writes import Writes
from tests.conditions import eventually
from tests.workspace.filing import Files, reason, refused
from tests.workspace.instances import Client, Holder, Machine, running

SESSION = SessionKey("default", "s1")


async def test_a_write_shows_a_good_grant(client: Client, machine: Machine, holder: Holder) -> None:
    await client.adopt(machine.supplied())
    files = Files(client)
    assert await reason(files.write("f", b"x")) == "MISSING_OWNER"
    assert await reason(files.write("f", b"x", await holder.acquire("other"))) == "WRONG_RESOURCE"
    forged = Grant(kid="k", payload=b"p", signature=b"s")
    assert await reason(files.write("f", b"x", forged)) == "GRANT_INVALID"
    assert await files.names() == []
    missing = Files(client, workspace_id="missing")
    for call in (missing.write("f", b""), missing.read("f"), missing.names()):
        assert await reason(call) == "WORKSPACE_NOT_FOUND"


async def test_a_lower_token_writes_no_more(client: Client, machine: Machine, holder: Holder) -> None:
    await client.adopt(machine.supplied())
    old = await holder.acquire()
    files = Files(client, old)
    await files.write("f", b"old")
    files.grant = await holder.next(1)
    await files.write("f", b"new")
    assert (await client.get()).token == 2
    assert await reason(files.write("f", b"late", old)) == "STALE_OWNER"
    assert await reason(files.write("other/file", b"late", old)) == "STALE_OWNER"
    assert await files.read("f") == b"new"
    assert await files.names() == ["f"]


async def test_a_claim_returns_when_lower_writes_are_over(
    client: Client, machine: Machine, holder: Holder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.adopt(machine.supplied())
    files = Files(client, await holder.acquire())
    pause = tmp_path / "pause"
    monkeypatch.setitem(failpoints._active, "workspace.write_file.after_fence", f"pause:{pause}")
    write = asyncio.create_task(files.write("f", b"old"))
    await eventually(pause.with_name("pause.reached").exists)
    claim = asyncio.create_task(client.claim(await holder.next(1)))

    async def is_raised() -> bool:
        return (await client.get()).token == 2

    await eventually(is_raised)
    assert not claim.done()
    pause.touch()
    await claim
    assert await files.read("f") == b"old"
    assert await write == 3


async def test_a_workspace_that_is_elsewhere_or_gone_is_not_touched(
    client: Client, machine: Machine, holder: Holder
) -> None:
    made = await client.make()
    files = Files(client, await holder.acquire())
    await files.write("f", b"x")
    elsewhere = Machine(machine.database_url, machine.owner_address, machine.directory)
    async with running(elsewhere) as (other, instance):
        strange = Files(other, files.grant)
        for call in (strange.write("f", b""), strange.read("f"), strange.names()):
            error = await refused(call)
            assert error.reason_name == "WRONG_INSTANCE"
            assert error.metadata["endpoint"] == made.endpoint != instance.endpoint
    await client.delete()
    await client.settled()
    for call in (files.write("f", b""), files.read("f"), files.names()):
        assert await reason(call) == "WORKSPACE_NOT_READY"
    assert not Path(made.root).exists()


async def test_a_write_lasts_as_long_as_its_thread() -> None:
    writes = Writes()
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        leave.wait(20)

    async def write() -> None:
        with writes.begun(SESSION, 1) as begun:
            await writes.run(begun, work)

    caller = asyncio.create_task(write())
    await asyncio.to_thread(entered.wait, 20)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await writes.until_over(SESSION, below=1)
    await writes.until_over(SessionKey("default", "other"), below=2)
    waiting = [
        asyncio.create_task(writes.until_over(SESSION, below=2)),
        asyncio.create_task(writes.until_none()),
    ]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    assert not done
    leave.set()
    await asyncio.gather(*waiting)


async def test_a_write_that_is_refused_is_over() -> None:
    writes = Writes()
    with pytest.raises(ZeroDivisionError), writes.begun(SESSION, 1):
        raise ZeroDivisionError
    await writes.until_none()
