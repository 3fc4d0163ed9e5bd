"""Workspaces: what is stored about one, its states, and why a call about one is refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from services.workspace.specs import Spec


class WorkspaceState(enum.StrEnum):
    """PROVISIONING -> READY -> DELETING -> DELETED; besides FAILED and LOST."""

    PROVISIONING = "PROVISIONING"
    READY = "READY"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"
    LOST = "LOST"


IN_TRANSITION: Final = frozenset({WorkspaceState.PROVISIONING, WorkspaceState.DELETING})
REMOVED: Final = frozenset({WorkspaceState.DELETING, WorkspaceState.DELETED})


class Origin(enum.StrEnum):
    """Who made the directory, and so who may remove it."""

    PROVISIONED = "PROVISIONED"
    SUPPLIED = "SUPPLIED"


class Source(enum.StrEnum):
    """What the caller asked for."""

    PROVISION = "PROVISION"
    BINDING = "BINDING"
    DEFAULT = "DEFAULT"


@dataclass(frozen=True, slots=True)
class Intent:
    """What ProvisionWorkspace asks for.

    `directory` is there only with a binding, as the caller wrote it; `asked` only when one is to
    be made, or not even then, if it was stored before there was anything to ask for.
    """

    project: str
    workspace_id: str
    session_id: str
    source: Source
    provider: str
    directory: str
    asked: Spec | None


@dataclass(frozen=True, slots=True)
class Workspace(Intent):
    """A workspace as it is stored.

    `endpoint` is that of the instance that carries it, `token` the highest fencing token seen.
    `use_time` is its last known use, `delete_time` when somebody wants it deleted.
    `spec` is `asked` with the provider's defaults filled in, `generation` how often it was made anew.
    """

    origin: Origin
    state: WorkspaceState
    state_reason: str
    root: str
    instance_id: str
    endpoint: str
    token: int
    attempts: int
    spec: Spec | None
    generation: int
    create_time: datetime
    update_time: datetime
    use_time: datetime | None = None
    delete_time: datetime | None = None

    @property
    def resource(self) -> str:
        """The name of the lease whose grants are good here."""
        return resource_of(self.project, self.session_id)

    @property
    def intent(self) -> Intent:
        """What it was asked for with; a repeated call must ask for the same."""
        return Intent(
            self.project,
            self.workspace_id,
            self.session_id,
            self.source,
            self.provider,
            self.directory,
            self.asked,
        )


def resource_of(project: str, session_id: str) -> str:
    """The name of a session's lease."""
    return f"projects/{project}/sessions/{session_id}"


class WorkspaceNotFound(NotFound):
    """workspace {workspace_id} does not exist in project {project}"""

    reason = ErrorReason.ERROR_REASON_WORKSPACE_NOT_FOUND


class WorkspaceAlreadyExists(AlreadyExists):
    """workspace {workspace_id} exists in project {project}, or did, and is {state}"""

    reason = ErrorReason.ERROR_REASON_WORKSPACE_ALREADY_EXISTS


class WorkspaceNotReady(FailedPrecondition):
    """workspace {workspace_id} is {state}: {state_reason}"""

    reason = ErrorReason.ERROR_REASON_WORKSPACE_NOT_READY


class WorkspaceStopped(WorkspaceNotReady):
    """what ran in workspace {workspace_id} ended, as {state_reason}"""


class WrongInstance(FailedPrecondition):
    """workspace {workspace_id} is carried by instance {instance_id} at {endpoint}"""

    reason = ErrorReason.ERROR_REASON_WRONG_INSTANCE


class ProviderUnavailable(FailedPrecondition):
    """provider {provider} makes no workspaces here: {cause}"""

    reason = ErrorReason.ERROR_REASON_PROVIDER_UNAVAILABLE


class QuotaExceeded(ResourceExhausted):
    """project {project} has {quota} workspaces that were made for it, and may not have more"""

    reason = ErrorReason.ERROR_REASON_QUOTA_EXCEEDED


class BindingUnresolved(FailedPrecondition):
    """the binding of kind {kind} cannot be resolved: {cause}"""

    reason = ErrorReason.ERROR_REASON_BINDING_UNRESOLVED


class ExecStartFailed(FailedPrecondition):
    """{command} could not be started: {cause}"""

    reason = ErrorReason.ERROR_REASON_EXEC_START_FAILED


def binding_required() -> InvalidArgument:
    """Nothing was asked for, and there is nothing to fall back on."""
    return InvalidArgument.of(
        "source",
        "neither provision nor binding was given, and this instance has no default directory",
        reason=ErrorReason.ERROR_REASON_BINDING_REQUIRED,
    )


def outside_root(field: str, directory: str, root: str) -> InvalidArgument:
    """A path that leads out of where it must stay."""
    return InvalidArgument.of(
        field, f"{directory} lies outside {root}", reason=ErrorReason.ERROR_REASON_PATH_OUTSIDE_ROOT
    )


def check_same(stored: Workspace, intent: Intent) -> Workspace:
    """The stored workspace, if a repeated call may have it."""
    if stored.intent not in (intent, replace(intent, asked=None)) or stored.state in REMOVED:
        raise WorkspaceAlreadyExists(
            project=stored.project, workspace_id=stored.workspace_id, state=stored.state
        )
    return stored


def check_ready(workspace: Workspace) -> Workspace:
    """The workspace, if processes may run in it."""
    if workspace.state is not WorkspaceState.READY:
        raise not_ready(workspace, workspace.state_reason or "it has no directory to work in")
    return workspace


def not_ready(workspace: Workspace, state_reason: str) -> WorkspaceNotReady:
    """Why processes cannot run in it."""
    return WorkspaceNotReady(
        workspace_id=workspace.workspace_id, state=workspace.state, state_reason=state_reason
    )


def check_instance(workspace: Workspace, instance_id: str) -> Workspace:
    """The workspace, if this instance carries it."""
    if workspace.instance_id != instance_id:
        raise WrongInstance(
            workspace_id=workspace.workspace_id,
            instance_id=workspace.instance_id,
            endpoint=workspace.endpoint,
        )
    return workspace
