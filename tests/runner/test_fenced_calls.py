"""Every call that shows a grant is refused without a good one, with the reason, and changes nothing (F4, F5).

Which calls these are is read from the contracts: a new one fails here until it is tried here, too.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import turn_pb2
from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.record_pb2 import InteractionKind, InteractionOpened, InteractionOption
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.session.v1 import journal_pb2
from moorage.session.v1.journal_pb2_grpc import JournalServiceStub
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceStub

from services.common.channels import open_channel
from services.common.errors import name_of
from services.common.status import from_rpc_error
from tests.conditions import eventually
from tests.runner.parts import Stack
from tests.runner.samples import message
from tests.runner.talks import Talks, kinds_of

PROTOS = Path(__file__).parents[2] / "protos"
JOURNAL, WORKSPACE = "moorage.session.v1.JournalService", "moorage.workspace.v1.WorkspaceService"
SESSION: dict[str, Any] = {"project": "default", "session_id": "s"}
ATTEMPT: dict[str, Any] = {**SESSION, "turn_id": "t", "attempt_id": "a1"}
# Longer than the shortest lease and the clocks' skew.
PAST = 3.1


def carries_grant(message: Descriptor, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a grant is anywhere in such a message."""
    if message.full_name == Grant.DESCRIPTOR.full_name:
        return True
    if message.full_name in seen:
        return False
    seen |= {message.full_name}
    return any(field.message_type and carries_grant(field.message_type, seen) for field in message.fields)


def fenced_calls() -> set[str]:
    """The full names of all RPCs whose requests carry a grant, by the contracts."""
    names = (path.relative_to(PROTOS).with_suffix("") for path in PROTOS.rglob("*_pb2.py"))
    files = [importlib.import_module(".".join(name.parts)).DESCRIPTOR for name in names]
    methods = [
        method for file in files for service in file.services_by_name.values() for method in service.methods
    ]
    return {method.full_name for method in methods if carries_grant(method.input_type)}


class Calls:
    """Each of them, with any grant; gives the reason of the refusal, empty for none."""

    def __init__(self, journal: grpc.aio.Channel, workspace: grpc.aio.Channel, workspace_id: str) -> None:
        self._journal: Any = JournalServiceStub(journal)
        self._workspace: Any = WorkspaceServiceStub(workspace)
        self._place: dict[str, Any] = {"project": "default", "workspace_id": workspace_id}
        self.by_name: dict[str, Callable[[Grant | None], Awaitable[str]]] = {
            # In the order of a turn, so that each is possible where its grant is good.
            f"{WORKSPACE}.ClaimWorkspace": self.claim,
            f"{JOURNAL}.BeginTurn": self.begin,
            f"{JOURNAL}.ReportProgress": self.report,
            f"{JOURNAL}.ListHistory": self.history,
            f"{JOURNAL}.AppendRecords": self.append,
            f"{JOURNAL}.OpenInteraction": self.ask,
            f"{WORKSPACE}.Exec": self.exec,
            f"{WORKSPACE}.WriteFile": self.write,
            f"{JOURNAL}.FinishTurn": self.finish,
            f"{JOURNAL}.ClaimSession": self.claim_session,
        }

    async def claim(self, grant: Grant | None) -> str:
        request = workspace_pb2.ClaimWorkspaceRequest(grant=grant, **self._place)
        return await refusal(self._workspace.ClaimWorkspace(request))

    async def begin(self, grant: Grant | None) -> str:
        return await refusal(self._journal.BeginTurn(journal_pb2.BeginTurnRequest(grant=grant, **ATTEMPT)))

    async def report(self, grant: Grant | None) -> str:
        request = journal_pb2.ReportProgressRequest(
            grant=grant, phase=turn_pb2.TURN_PHASE_PROMPTED, prompt_sent=True, **ATTEMPT
        )
        return await refusal(self._journal.ReportProgress(request))

    async def history(self, grant: Grant | None) -> str:
        request = journal_pb2.ListHistoryRequest(grant=grant, before_turn_id="t", max_bytes=1000, **SESSION)
        return await refusal(self._journal.ListHistory(request))

    async def append(self, grant: Grant | None) -> str:
        record = journal_pb2.RecordAppend(grant=grant, turn_seq=1, body=message("said"), **ATTEMPT)
        call = self._journal.AppendRecords()
        await call.write(journal_pb2.AppendRecordsRequest(appends=[record]))
        (result,) = (await call.read()).results
        call.cancel()
        return name_of(result.error.reason) if result.HasField("error") else ""

    async def ask(self, grant: Grant | None) -> str:
        option = InteractionOption(option_id="yes", name="Yes", kind="allow_once")
        question = InteractionOpened(
            interaction_id="i",
            title="may it",
            options=[option],
            kind=InteractionKind.INTERACTION_KIND_PERMISSION,
        )
        request = journal_pb2.OpenInteractionRequest(grant=grant, turn_seq=2, interaction=question, **ATTEMPT)
        return await refusal(self._journal.OpenInteraction(request))

    async def exec(self, grant: Grant | None) -> str:
        start = workspace_pb2.ExecStart(
            grant=grant, command=["/bin/sh", "-c", "echo ran >> ran"], **self._place
        )
        call = self._workspace.Exec()
        await call.write(workspace_pb2.ExecRequest(start=start))
        return await refusal(_until_ended(call))

    async def write(self, grant: Grant | None) -> str:
        request = workspace_pb2.WriteFileRequest(grant=grant, path="written", data=b"x", **self._place)
        return await refusal(self._workspace.WriteFile(request))

    async def finish(self, grant: Grant | None) -> str:
        request = journal_pb2.FinishTurnRequest(
            grant=grant,
            last_turn_seq=2,
            state=turn_pb2.TURN_STATE_COMPLETED,
            end_reason=turn_pb2.END_REASON_AGENT_ENDED,
            **ATTEMPT,
        )
        return await refusal(self._journal.FinishTurn(request))

    async def claim_session(self, grant: Grant | None) -> str:
        return await refusal(
            self._journal.ClaimSession(journal_pb2.ClaimSessionRequest(grant=grant, **SESSION))
        )


async def refusal(call: Awaitable[object]) -> str:
    """The reason, empty when the call was carried out."""
    try:
        async with asyncio.timeout(20):
            await call
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason_name
    return ""


async def _until_ended(call: Any) -> None:
    async for answer in call:
        if answer.HasField("ended"):
            return


class Owner:
    """Grants of sessions, each holder another one."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = LeaseServiceStub(channel)

    async def grant(self, session_id: str, ttl: int = 60, *, release: bool = False) -> Grant:
        """A new one; its lease is given back, if wanted, and it lives on."""
        request = lease_pb2.AcquireLeaseRequest(
            resource=f"projects/default/sessions/{session_id}",
            holder=f"h/{time.monotonic_ns()}",
            ttl=Duration(seconds=ttl),
            labels={"role": "runner"},
        )
        answer = await self._stub.AcquireLease(request)
        if release:
            named = {"resource": request.resource, "holder": request.holder, "token": answer.lease.token}
            await self._stub.ReleaseLease(lease_pb2.ReleaseLeaseRequest(**named))
        return Grant.FromString(answer.grant.SerializeToString())


@pytest.fixture
async def owner(stack: Stack) -> AsyncIterator[Owner]:
    """The real one."""
    async with open_channel(stack.owner.endpoint) as channel:
        yield Owner(channel)


@pytest.fixture
async def calls(stack: Stack, talks: Talks) -> AsyncIterator[Calls]:
    """About a session with an admitted turn, which no runner knows."""
    made = await talks.create("s")
    await talks.start("s", "t", "hello")
    async with (
        open_channel(stack.session.service.journal_endpoint) as journal,
        open_channel(stack.workspace.endpoint) as workspace,
    ):
        yield Calls(journal, workspace, made.workspace.workspace_id)


async def test_each_bad_grant_is_refused_with_its_reason_and_a_good_one_is_not(
    talks: Talks, owner: Owner, calls: Calls, root: Path
) -> None:
    assert set(calls.by_name) == fenced_calls()
    expired = await owner.grant("s", ttl=2)
    expires_at = time.monotonic() + PAST
    await eventually(lambda: time.monotonic() > expires_at, what="the lease and the skew are over")
    older = await owner.grant("s", release=True)
    good = await owner.grant("s")
    forged = Grant(kid=good.kid, payload=good.payload, signature=bytes(64))
    altered = Grant(kid=good.kid, payload=older.payload, signature=good.signature)
    bad: dict[str, list[Grant | None]] = {
        "MISSING_OWNER": [None],
        "GRANT_INVALID": [
            forged,
            altered,
            Grant(kid="unknown", payload=good.payload, signature=good.signature),
        ],
        "WRONG_RESOURCE": [await owner.grant("other")],
        "LEASE_EXPIRED": [expired],
        "STALE_OWNER": [older],
    }
    for name, call in calls.by_name.items():
        # The fence stands as soon as the good grant was seen once, at the session and at the workspace.
        if name.endswith(("ClaimWorkspace", "BeginTurn")):
            assert await call(good) == "", name
        before = kinds_of(await talks.records("s"))
        for reason, grants in bad.items():
            assert {await call(grant) for grant in grants} == {reason}, (name, reason)
        assert kinds_of(await talks.records("s")) == before, name
        assert not (root / "ran").exists()
        assert not (root / "written").exists()
        if not name.startswith(WORKSPACE):
            assert await call(good) == "", name
    for name in ("Exec", "WriteFile"):
        assert await calls.by_name[f"{WORKSPACE}.{name}"](good) == "", name
    assert (root / "ran").read_text() == "ran\n"
    assert (await talks.turn("s", "t")).state == turn_pb2.TURN_STATE_COMPLETED
    print(f"{len(calls.by_name)} fenced calls, each refused for {', '.join(bad)}")
