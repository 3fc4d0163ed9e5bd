"""Where a turn's agent runs: the session's workspace, resolved, ready and claimed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.provision_pb2 import NetworkPolicy
from moorage.common.v1.record_pb2 import RecordBody, WorkspacePrepared
from moorage.common.v1.turn_pb2 import EndReason
from moorage.session.v1.journal_pb2 import BeginTurnResponse
from moorage.workspace.v1.workspace_pb2 import Workspace

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.logs import get_logger
from services.common.loops import Failures
from services.common.together import both
from services.fencing.leases import HeldLease
from services.runner.clients.workspaces import Workspaces
from services.runner.endings import NOT_OURS, UNCERTAIN, TurnAbandoned, TurnFailed

_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 2.0
_PROVISIONING: Final = "PROVISIONING"
_LOST: Final = "LOST"
_LOCAL: Final = "local"

_log: Final = get_logger(__name__)

Tell = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Place:
    """A claimed workspace; `root` is the absolute path of the agent's working directory."""

    project: str
    workspace_id: str
    root: str
    endpoint: str
    provider: str
    network: NetworkPolicy.ValueType
    has_setup: bool = False

    @property
    def in_container(self) -> bool:
        """Whether its processes see another file system than the instance's."""
        return self.provider != _LOCAL


class Kept(NamedTuple):
    """What is to live on in a workspace: an exec, and the instance that carries it."""

    exec_id: str
    endpoint: str


class Preparation:
    """Waits for the workspaces of turns, and claims them."""

    def __init__(self, workspaces: Workspaces, clock: Clock) -> None:
        """One for all turns."""
        self._workspaces = workspaces
        self._clock = clock

    async def run(
        self, project: str, begun: BeginTurnResponse, lease: HeldLease, kept: Kept | None, tell: Tell
    ) -> Place:
        """The claimed place; TurnFailed when there will be none.

        All processes of the session but what is kept are dead then. `tell` is told in words what
        is waited for, whenever that changes.
        """
        failures = Failures("preparing a workspace")
        told = ""
        # Mostly it is where it was; whoever does not find it there looks first.
        claimed_at = kept.endpoint if kept else ""
        while True:
            try:
                return await self._prepare(project, begun, lease, kept.exec_id if kept else "", claimed_at)
            except MoorageError as error:
                obstacle, claimed_at = error, ""
            if not _may_pass(obstacle):
                raise _failure(obstacle) from obstacle
            failures.report(obstacle)
            if str(obstacle) != told:
                told = str(obstacle)
                await tell(told)
            await self._wait(project, begun.workspace_id, failures)

    async def told(self, project: str, workspace_id: str) -> RecordBody | None:
        """How the workspace's set-up command ended; None without one, or when it is not known now."""
        try:
            return _prepared(await self._workspaces.get(project, workspace_id))
        except MoorageError as error:
            _log.warning("how a workspace was prepared is not known", error=str(error))
            return None

    async def _prepare(
        self, project: str, begun: BeginTurnResponse, lease: HeldLease, keep_exec_id: str, claimed_at: str
    ) -> Place:
        """`claimed_at` is the endpoint to claim at while that is still asked for; empty for none."""
        workspace_id = begun.workspace_id

        def claim(endpoint: str) -> Coroutine[None, None, None]:
            return self._workspaces.claim(endpoint, lease.grant, project, workspace_id, keep_exec_id)

        found = self._workspaces.resolve(project, workspace_id, begun.binding)
        if claimed_at:
            there, _ = await both(found, claim(claimed_at))
        else:
            there = await found
        if there.endpoint != claimed_at:
            await claim(there.endpoint)
        return Place(
            project,
            workspace_id,
            there.root,
            there.endpoint,
            there.provider,
            there.network,
            there.has_setup,
        )

    async def _wait(self, project: str, workspace_id: str, failures: Failures) -> None:
        await self._clock.sleep(failures.back_off(_FIRST_DELAY, _LONGEST_DELAY))
        try:
            await self._workspaces.wait_settled(project, workspace_id)
        except MoorageError:
            # The next try tells.
            return


def _prepared(workspace: Workspace) -> RecordBody | None:
    if not workspace.HasField("setup"):
        return None
    setup = workspace.setup
    prepared = WorkspacePrepared(
        command=workspace.spec.setup.command,
        out_of_memory=setup.ended.out_of_memory,
        output=setup.output,
        truncated=setup.truncated,
    )
    match setup.ended.WhichOneof("how"):
        case "exit_code":
            prepared.exit_code = setup.ended.exit_code
        case "signal":
            prepared.signal = setup.ended.signal
        case "timeout":
            prepared.timeout.CopyFrom(setup.ended.timeout.after)
    return RecordBody(workspace_prepared=prepared)


def _may_pass(error: MoorageError) -> bool:
    if error.reason == ErrorReason.ERROR_REASON_WORKSPACE_NOT_READY:
        return error.metadata.get("state") == _PROVISIONING
    return isinstance(error, UNCERTAIN)


def _failure(error: MoorageError) -> Exception:
    if error.reason in NOT_OURS:
        return TurnAbandoned.after(error)
    if error.reason == ErrorReason.ERROR_REASON_BINDING_UNRESOLVED:
        return TurnFailed.because(EndReason.END_REASON_BINDING_UNRESOLVED, error)
    if error.metadata.get("state") == _LOST:
        return TurnFailed.because(EndReason.END_REASON_WORKSPACE_LOST, error)
    return TurnFailed.because(EndReason.END_REASON_PREPARE_FAILED, error)
