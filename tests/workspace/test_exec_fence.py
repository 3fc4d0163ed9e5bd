"""Who may start a command, how long it lives, and what ends it (F4 to F6)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from moorage.common.v1.grant_pb2 import Grant

from services.common.errors import MoorageError
from tests.conditions import eventually
from tests.workspace.instances import Client, Holder, Machine, duration
from tests.workspace.processes import is_alive

# A leader, a child in its group, one in a session of its own, and one that also cleared its environment.
FAMILY = """
echo $$ >> pids; sleep 600 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 600' &
setsid env -i sh -c 'echo $$ >> pids; exec /bin/sleep 600' &
wait
"""


@pytest.fixture
async def workspace(client: Client, machine: Machine) -> Path:
    """A ready workspace of session s1."""
    await client.adopt(machine.supplied())
    return machine.supplied()


class Family:
    """The processes that FAMILY makes."""

    def __init__(self, workspace: Path) -> None:
        self._file = workspace / "pids"

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._file.read_text().split()] if self._file.exists() else []

    async def grown(self) -> list[int]:
        await eventually(lambda: len(self.pids) == 4, what="four processes")
        assert all(map(is_alive, self.pids))
        return self.pids

    @property
    def is_dead(self) -> bool:
        return not any(map(is_alive, self.pids))


@pytest.fixture
def family(workspace: Path) -> Family:
    """Of the workspace."""
    return Family(workspace)


async def test_a_command_needs_a_grant(client: Client, workspace: Path) -> None:
    refusal = await client.exec(None, "true").refusal()
    assert refusal.reason_name == "MISSING_OWNER"


async def test_a_forged_grant_is_refused(client: Client, workspace: Path, holder: Holder) -> None:
    grant = await holder.acquire()
    forged = Grant(kid=grant.kid, payload=grant.payload, signature=bytes(64))
    assert (await client.exec(forged, "true").refusal()).reason_name == "GRANT_INVALID"
    unknown = Grant(kid="unknown", payload=grant.payload, signature=grant.signature)
    assert (await client.exec(unknown, "true").refusal()).reason_name == "GRANT_INVALID"


async def test_a_grant_for_another_session_is_refused(
    client: Client, workspace: Path, holder: Holder
) -> None:
    for grant in (await holder.acquire("s2"), await holder.acquire("s1", project="other")):
        refusal = await client.exec(grant, "true").refusal()
        assert refusal.reason_name == "WRONG_RESOURCE"
        assert refusal.metadata["resource"] == "projects/default/sessions/s1"


async def test_an_expired_grant_is_refused(client: Client, workspace: Path, holder: Holder) -> None:
    grant = await holder.acquire(ttl=0.5)

    async def is_refused() -> bool:
        try:
            async with client.exec(grant, "true"):
                return False
        except MoorageError as error:
            return error.reason_name == "LEASE_EXPIRED"

    await eventually(is_refused)
    assert (await client.get()).token == 1


async def test_a_missing_workspace_comes_before_the_grant(client: Client) -> None:
    refusal = await client.exec(None, "true").refusal()
    assert refusal.reason_name == "WORKSPACE_NOT_FOUND"


async def test_a_lower_token_is_refused_for_ever(client: Client, workspace: Path, holder: Holder) -> None:
    lower = await holder.acquire()
    higher = await holder.next(1)
    assert (await client.exec(higher, "true").run()).how == ("exit_code", 0)
    refusal = await client.exec(lower, "true").refusal()
    assert refusal.reason_name == "STALE_OWNER"
    assert refusal.metadata == {"resource": "projects/default/sessions/s1", "token": "1", "highest": "2"}
    assert (await client.get()).token == 2


async def test_commands_of_one_token_live_side_by_side(
    client: Client, workspace: Path, holder: Holder
) -> None:
    grant = await holder.acquire()
    async with client.exec(grant, "cat") as one, client.exec(grant, "cat") as two:
        for stream in (one, two):
            await stream.write(b"x\n")
            await stream.read_until(b"x\n")


async def test_a_start_with_a_higher_token_ends_what_is_lower(
    client: Client, holder: Holder, family: Family
) -> None:
    grant = await holder.acquire()
    async with client.exec(grant, "sh", "-c", FAMILY) as stream:
        await family.grown()
        async with client.exec(await holder.next(1), "sleep", "600") as successor:
            assert family.is_dead
            error = (await stream.result()).error
            assert error is not None
            assert error.reason_name == "STALE_OWNER"
            assert error.metadata["highest"] == "2"
            assert is_alive(successor.pid)


async def test_a_claim_with_a_higher_token_returns_when_all_are_dead(
    client: Client, holder: Holder, family: Family
) -> None:
    async with client.exec(await holder.acquire(), "sh", "-c", FAMILY) as stream:
        await family.grown()
        response = await client.claim(await holder.next(1))
        assert family.is_dead
        assert (response.ended_execs, response.workspace.token) == (1, 2)
        error = (await stream.result()).error
        assert error is not None
        assert error.reason_name == "STALE_OWNER"


async def test_a_stopped_group_dies_too(client: Client, holder: Holder, family: Family) -> None:
    async with client.exec(await holder.acquire(), "sh", "-c", FAMILY) as stream:
        await family.grown()
        await stream.signal("SIGSTOP")
        await client.claim(await holder.next(1))
        assert family.is_dead


async def test_a_caller_that_does_not_read_holds_up_no_claim(
    client: Client, workspace: Path, holder: Holder
) -> None:
    async with client.exec(await holder.acquire(), "sh", "-c", "yes & wait") as stream:
        await client.claim(await holder.next(1))
        assert not is_alive(stream.pid)


async def test_a_claim_keeps_the_named_command_of_its_own_token(
    client: Client, workspace: Path, holder: Holder
) -> None:
    grant = await holder.acquire()
    async with client.exec(grant, "cat") as kept, client.exec(grant, "sleep", "600") as other:
        response = await client.claim(grant, keep=kept.exec_id)
        assert response.ended_execs == 1
        assert not is_alive(other.pid)
        error = (await other.result()).error
        assert error is not None
        assert error.reason_name == "CANCELLED"
        await kept.write(b"still here\n")
        await kept.read_until(b"still here")
        assert (await client.claim(grant, keep=kept.exec_id)).ended_execs == 0
        assert (await client.claim(grant)).ended_execs == 1
        assert not is_alive(kept.pid)


async def test_a_claim_never_keeps_what_a_lower_token_started(
    client: Client, workspace: Path, holder: Holder
) -> None:
    async with client.exec(await holder.acquire(), "sleep", "600") as stream:
        response = await client.claim(await holder.next(1), keep=stream.exec_id)
        assert response.ended_execs == 1
        assert not is_alive(stream.pid)


async def test_claims_are_fenced(client: Client, workspace: Path, holder: Holder) -> None:
    grant = await holder.acquire()
    with pytest.raises(MoorageError) as missing:
        await client.claim(grant, "missing")
    assert missing.value.reason_name == "WORKSPACE_NOT_FOUND"
    with pytest.raises(MoorageError) as without:
        await client.claim(None)
    assert without.value.reason_name == "MISSING_OWNER"
    with pytest.raises(MoorageError) as foreign:
        await client.claim(await holder.acquire("s2"))
    assert foreign.value.reason_name == "WRONG_RESOURCE"
    higher = await holder.next(1)
    assert (await client.claim(higher)).workspace.token == 2
    with pytest.raises(MoorageError) as stale:
        await client.claim(grant)
    assert stale.value.reason_name == "STALE_OWNER"
    assert (await client.claim(higher)).workspace.token == 2


async def test_a_stale_claim_ends_nothing(client: Client, workspace: Path, holder: Holder) -> None:
    lower = await holder.acquire()
    async with client.exec(await holder.next(1), "cat") as stream:
        with pytest.raises(MoorageError):
            await client.claim(lower)
        await stream.write(b"x\n")
        await stream.read_until(b"x\n")


async def test_a_claim_works_in_every_state(client: Client, workspace: Path, holder: Holder) -> None:
    await client.delete()
    await client.settled()
    assert (await client.claim(await holder.acquire())).workspace.token == 1


async def test_a_raised_token_stays_when_the_start_is_refused(
    client: Client, workspace: Path, holder: Holder
) -> None:
    lower = await holder.acquire()
    async with client.exec(lower, "sleep", "600") as stream:
        workspace.rename(workspace.with_name("away"))
        refusal = await client.exec(await holder.next(1), "true").refusal()
        assert refusal.reason_name == "WORKSPACE_NOT_READY"
        assert (await client.get()).token == 2
        assert not is_alive(stream.pid)


async def test_sessions_do_not_touch_each_other(client: Client, workspace: Path, holder: Holder) -> None:
    other = workspace.with_name("other")
    other.mkdir()
    await client.adopt(other, "w2", session_id="s2")
    async with client.exec(await holder.acquire("s2"), "cat", workspace_id="w2") as stream:
        await client.claim(await holder.acquire())
        await client.claim(await holder.next(1))
        await stream.write(b"x\n")
        await stream.read_until(b"x\n")


async def test_all_workspaces_of_a_session_are_fenced_together(
    client: Client, workspace: Path, holder: Holder
) -> None:
    other = workspace.with_name("other")
    other.mkdir()
    await client.adopt(other, "w2")
    lower = await holder.acquire()
    async with client.exec(lower, "sleep", "600", workspace_id="w2") as stream:
        await client.claim(await holder.next(1))
        assert not is_alive(stream.pid)


async def test_input_after_a_higher_token_never_reaches_the_command(
    client: Client, workspace: Path, holder: Holder
) -> None:
    async with client.exec(
        await holder.acquire(), "sh", "-c", "while read x; do echo $x >> got; done"
    ) as stream:
        await stream.write(b"before\n")
        await eventually(
            lambda: (workspace / "got").exists() and (workspace / "got").read_text() == "before\n"
        )
        await client.claim(await holder.next(1))
        with contextlib.suppress(MoorageError, asyncio.InvalidStateError):
            await stream.write(b"after\n")
        assert (await stream.result()).error is not None
    assert (workspace / "got").read_text() == "before\n"


async def test_a_command_dies_with_its_newest_grant(client: Client, holder: Holder, family: Family) -> None:
    grant = await holder.acquire(ttl=3.0)
    async with client.exec(grant, "sh", "-c", FAMILY) as stream:
        await family.grown()
        result = await stream.result()
        assert family.is_dead
    assert result.error is not None
    assert result.error.reason_name == "LEASE_EXPIRED"
    # It was dead before the lease could go to another.
    with pytest.raises(MoorageError, match="held"):
        await holder.acquire()


async def test_shown_grants_let_it_live_on(client: Client, workspace: Path, holder: Holder) -> None:
    grant = await holder.acquire(ttl=3.0)
    async with client.exec(grant, "sh", "-c", "sleep 5; echo lived") as stream, asyncio.TaskGroup() as group:

        async def keep() -> None:
            while True:
                await stream.show(await holder.renew(1))
                await asyncio.sleep(0.3)

        keeping = group.create_task(keep())
        result = await stream.result()
        keeping.cancel()
    assert result.stdout == b"lived\n"
    assert result.how == ("exit_code", 0)


async def test_a_grant_shown_elsewhere_does_not_count(
    client: Client, workspace: Path, holder: Holder
) -> None:
    grant = await holder.acquire(ttl=3.0)
    async with client.exec(grant, "sleep", "600") as stream:
        renewed = await holder.renew(1)
        await client.claim(renewed, keep=stream.exec_id)
        error = (await stream.result()).error
    assert error is not None
    assert error.reason_name == "LEASE_EXPIRED"


@pytest.mark.parametrize("kind", ["forged", "foreign", "missing", "lower", "higher"])
async def test_a_bad_grant_frame_ends_the_command(
    client: Client, workspace: Path, holder: Holder, kind: str
) -> None:
    lower = await holder.acquire()
    grant = await holder.next(1)
    reasons = {
        "forged": (Grant(kid=grant.kid, payload=grant.payload, signature=b"x" * 64), "GRANT_INVALID"),
        "foreign": (await holder.acquire("s2"), "WRONG_RESOURCE"),
        "missing": (Grant(), "MISSING_OWNER"),
        "lower": (lower, "STALE_OWNER"),
    }
    async with client.exec(grant, "sleep", "600") as stream:
        shown, reason = reasons.get(kind) or (await holder.next(2), "STALE_OWNER")
        await stream.show(shown)
        error = (await stream.result()).error
        assert error is not None
        assert error.reason_name == reason
        assert not is_alive(stream.pid)


async def test_a_long_command_outlives_no_timeout_of_the_server(
    client: Client, workspace: Path, holder: Holder
) -> None:
    grant = await holder.acquire()
    result = await client.exec(grant, "sleep", "600", timeout=duration(1.5)).run()
    assert result.how[0] == "timeout"
