"""CloseSession on a whole replica with real neighbours: what is ended, in which order, and what stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import FailedPrecondition, InvalidArgument, NotFound
from services.session.close import steps as close_steps
from tests.conditions import eventually
from tests.fakes import Gate
from tests.session.clients import Client
from tests.session.closings import PROVISION, Held, held_session
from tests.session.desks import Desk
from tests.session.leasing import Taker
from tests.session.places import NOWHERE, Places, running_session
from tests.session.questions import check_told, read
from tests.session.stops import all_commands
from tests.session.tables import workspaces
from tests.session.test_watch_service import watch

OPEN, CLOSING, CLOSED = (
    session_pb2.SESSION_STATE_OPEN,
    session_pb2.SESSION_STATE_CLOSING,
    session_pb2.SESSION_STATE_CLOSED,
)
DELETE_ON_CLOSE = session_pb2.RETENTION_POLICY_DELETE_ON_CLOSE
MANUAL = session_pb2.RETENTION_POLICY_MANUAL


@pytest.fixture
async def stage(places: Places, client: Client, desk: Desk) -> AsyncIterator[Held]:
    async with held_session(places, client, desk) as held:
        yield held


async def test_an_idle_session_closes_at_once_and_its_directory_goes(client: Client) -> None:
    made = await client.create(session_id="s1", provision=PROVISION, wait_ready=True)
    root = Path(made.binding.local.directory)
    (root / "file").write_text("made by the agent")
    assert (made.state, made.retention) == (OPEN, DELETE_ON_CLOSE)
    closed = await client.close("s1", wait=True)
    assert (closed.state, closed.HasField("operation")) == (CLOSED, False)
    assert not root.exists()
    found = await client.get("s1")
    assert (found.state, found.workspace.state, found.retention) == (CLOSED, "DELETED", DELETE_ON_CLOSE)
    assert [(each.session_id, each.state) for each in (await client.list_sessions()).sessions] == [
        ("s1", CLOSED)
    ]
    assert (await client.close("s1")).state == CLOSED


async def test_what_was_supplied_stays_and_what_was_made_stays_if_asked_for(
    client: Client, root: Path, database_url: str
) -> None:
    wished: dict[str, str] = {}
    for retention in (session_pb2.RETENTION_POLICY_UNSPECIFIED, MANUAL, DELETE_ON_CLOSE):
        name = f"s{retention}"
        (root / name).mkdir()
        (root / name / "file").write_text("mine")
        binding = binding_pb2.Binding(local=binding_pb2.LocalBinding(directory=str(root / name)))
        made = await client.create(session_id=name, binding=binding, retention=retention)
        assert made.retention == (retention or MANUAL)
        assert (await client.close(name, wait=True)).state == CLOSED
        assert (root / name / "file").read_text() == "mine"
        wished[made.workspace.workspace_id] = "DELETED" if retention == DELETE_ON_CLOSE else "READY"
    made = await client.create(session_id="made", provision=PROVISION, retention=MANUAL, wait_ready=True)
    assert (await client.close("made", wait=True)).state == CLOSED
    assert Path(made.binding.local.directory).is_dir()
    assert await workspaces(database_url) == {**wished, made.workspace.workspace_id: "READY"}


async def test_a_running_turn_is_stopped_then_its_runtime_ended_then_the_directory_removed(
    stage: Held,
) -> None:
    await stage.begun()
    closing = await stage.client.close("s1")
    assert (closing.state, closing.operation.kind) == (CLOSING, "CLOSE")
    assert (await stage.client.close("s1", wait=True)).state == CLOSED
    assert stage.order == ["stop", "end runtime"]
    assert not stage.root.exists()
    turn = await stage.client.get_turn("s1", "t1")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_CLOSED)
    assert turn.stop_method == turn_pb2.STOP_METHOD_AGENT_CONFIRMED
    assert [record.kind for record in await stage.desk.transcript()][-1] == "turn_ended"
    assert not (await stage.taker.read("s1")).live


async def test_a_question_is_cancelled_once(stage: Held) -> None:
    await stage.begun()
    await stage.holder.ask(1)
    assert (await stage.client.close("s1", wait=True)).state == CLOSED
    (command,) = await all_commands(stage.desk)
    assert (await read(stage.desk)).settled_by == command.command_id
    await check_told(stage.desk)
    assert stage.order == ["stop", "end runtime"]


async def test_a_stop_of_the_user_is_not_ordered_again_and_keeps_its_reason(stage: Held) -> None:
    stage.runner.stop_act = None
    await stage.begun()
    ordered = (await stage.client.stop("s1", "t1")).command
    await stage.client.close("s1")
    await eventually(partial(_waits_for, stage.client, "turn t1 is being stopped"))
    await stage.stop(stage.runner.stops[0])
    assert (await stage.client.close("s1", wait=True)).state == CLOSED
    assert [command.command_id for command in await all_commands(stage.desk)] == [ordered.command_id]
    assert (await stage.client.get_turn("s1", "t1")).end_reason == turn_pb2.END_REASON_USER_STOP


async def test_a_turn_that_ends_by_itself_meanwhile_has_ended_by_itself(stage: Held) -> None:
    stage.runner.stop_act = None
    await stage.begun()
    await stage.client.close("s1")
    await eventually(lambda: bool(stage.runner.stops))
    await stage.holder.finish()
    assert (await stage.client.close("s1", wait=True)).state == CLOSED
    assert (await stage.client.get_turn("s1", "t1")).end_reason == turn_pb2.END_REASON_AGENT_ENDED


async def test_a_turn_that_nobody_began_ends_at_once(client: Client) -> None:
    await client.create(session_id="s1")
    await client.start("s1", turn_id="t1")
    assert (await client.close("s1", wait=True)).state == CLOSED
    turn = await client.get_turn("s1", "t1")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_STOPPED, turn_pb2.END_REASON_CLOSED)
    assert turn.stop_method == turn_pb2.STOP_METHOD_NOT_BEGUN


async def test_nothing_new_begins_while_it_waits_for_its_holder(stage: Held) -> None:
    stage.runner.end_act = None
    closing = await stage.client.close("s1", request_id="r1")
    assert closing.state == CLOSING
    await eventually(partial(_waits_for, stage.client, f"{stage.runner.holder} until "))
    found = await stage.client.get("s1")
    assert (found.state, found.operation.kind) == (CLOSING, "CLOSE")
    assert found.operation.deadline.ToDatetime() > found.create_time.ToDatetime()
    await _check_refused(stage.client, "CLOSING")
    assert (await stage.client.with_patience(1.5).close("s1", wait=True, request_id="r1")).state == CLOSING
    assert stage.root.is_dir()
    await stage.taker.release(stage.lease)
    closed = await stage.client.close("s1", wait=True, request_id="r1")
    assert closed.state == CLOSED
    await _check_refused(stage.client, "CLOSED")


async def test_a_runtime_that_takes_long_to_end_is_waited_for(
    stage: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(close_steps, "_END", 0.1)
    gate = stage.runner.end_act = Gate()
    await stage.client.close("s1")
    await eventually(partial(_waits_for, stage.client, "is ending the session's runtime"))
    stage.runner.end_act = stage.end
    assert (await stage.client.close("s1", wait=True)).state == CLOSED
    assert gate.reached.is_set()


async def test_a_turn_whose_holder_is_gone_is_lost_and_the_session_closes(
    client: Client, desk: Desk, places: Places
) -> None:
    await client.create(session_id="s1")
    async with open_channel(places.owner_address) as owner:
        await Taker(owner).session("s1", "gone/1", endpoint=NOWHERE, ttl=2.0)
        await desk.turn("t1")
        await desk.holder(name="gone/1").begin()
        assert (await client.close("s1", wait=True)).state == CLOSED
    turn = await client.get_turn("s1", "t1")
    assert (turn.state, turn.end_reason) == (turn_pb2.TURN_STATE_LOST, turn_pb2.END_REASON_LEASE_LOST)


async def test_holders_that_cannot_be_told_are_waited_for(client: Client, places: Places) -> None:
    """A runner out of reach, and a replica of the service itself that ends a lost turn."""
    told = {"runner": "drives the session: runner is unavailable", "service": "holds the session"}
    async with open_channel(places.owner_address) as owner:
        for role, reason in told.items():
            await client.create(session_id=role)
            taken = await Taker(owner).session(role, "gone/1", endpoint=NOWHERE, role=role)
            await client.close(role)
            await eventually(partial(_waits_for, client, reason, role))
            await Taker(owner).release(taken.lease)
            assert (await client.close(role, wait=True)).state == CLOSED


async def test_it_waits_for_a_workspace_service_that_is_away_and_goes_on(places: Places) -> None:
    async with _served(places) as client:
        made = await client.create(session_id="s1", provision=PROVISION, wait_ready=True)
    root = Path(made.binding.local.directory)
    async with _served(replace(places, workspace_address=NOWHERE)) as client:
        await client.close("s1")
        await eventually(partial(_waits_for, client, "workspace is unavailable"))
    assert root.is_dir()
    async with _served(places) as client:
        assert (await client.close("s1", wait=True)).state == CLOSED
    assert not root.exists()


async def test_a_closed_session_can_be_read_and_watched(places: Places, desk: Desk) -> None:
    holder = await desk.begun()
    await holder.append(1, 2)
    await holder.finish(last_turn_seq=2)
    async with (
        running_session(places, watch_heartbeat=0.1) as replica,
        open_channel(replica.endpoint) as channel,
        watch(channel, "s1") as before,
    ):
        assert (await Client(channel).close("s1", wait=True)).state == CLOSED
        async with watch(channel, "s1", 3) as after:
            told = [
                [await anext(events) for _ in range(count)] for events, count in ((before, 6), (after, 3))
            ]
    assert [[event.WhichOneof("event") for event in events] for events in told] == [
        ["record"] * 5 + ["heartbeat"],
        ["record"] * 2 + ["heartbeat"],
    ]


async def test_bad_input_is_refused(client: Client) -> None:
    with pytest.raises(NotFound) as unknown:
        await client.close("s1")
    assert unknown.value.reason_name == "SESSION_NOT_FOUND"
    for call, name in (
        (client.close("a b"), "session_id"),
        (client.close("s1", request_id="r" * 256), "request_id"),
        (client.create(session_id="s1", retention=77), "retention"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await call
        assert refused.value.metadata["field"] == name


async def test_calls_at_once_close_it_once(client: Client) -> None:
    for name in ("s1", "s2"):
        await client.create(session_id=name)
    closed = await asyncio.gather(*(client.close("s1", request_id="r1", wait=n % 2 == 0) for n in range(6)))
    assert {session.state for session in closed} <= {CLOSING, CLOSED}
    assert (await client.close("s2", request_id="r1", wait=True)).session_id == "s2"
    assert (await client.get("s1")).state == CLOSED


@contextlib.asynccontextmanager
async def _served(places: Places) -> AsyncIterator[Client]:
    async with running_session(places) as replica, open_channel(replica.endpoint) as channel:
        yield Client(channel)


async def _waits_for(client: Client, reason: str, session_id: str = "s1") -> bool:
    return reason in (await client.get(session_id)).operation.waiting_reason


async def _check_refused(client: Client, state: str) -> None:
    for call in (client.start("s1"), client.update("s1", "labels", labels={"a": "b"})):
        with pytest.raises(FailedPrecondition) as refused:
            await call
        assert (refused.value.reason_name, refused.value.metadata["state"]) == ("SESSION_CLOSED", state)
    assert not (await client.get("s1")).labels
