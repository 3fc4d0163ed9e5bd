"""The contract's messages, to and from the domain's values."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1 import binding_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_id, check_project, check_text
from services.workspace import bindings
from services.workspace.providers.local import NAME as LOCAL
from services.workspace.providers.registry import EngineState, Provider
from services.workspace.servicers.specs import limits, spec, spec_of
from services.workspace.workspaces import BindingUnresolved, Intent, Origin, Source, Workspace

_KINDS: Final = {
    "cloud": "workspaces made elsewhere are not adopted here",
    "external": "no worker pool is served here",
}
_UNKNOWN: Final = "this service knows no such kind"


def intent_of(request: workspace_pb2.ProvisionWorkspaceRequest) -> Intent:
    """What is asked for, its fields checked."""
    project = check_project(request.project)
    workspace_id = check_id("workspace_id", request.workspace_id)
    session_id = check_id("session_id", request.session_id)
    if request.HasField("provision"):
        provider = check_text("provision.provider", request.provision.provider) or LOCAL
        return Intent(
            project, workspace_id, session_id, Source.PROVISION, provider, "", spec_of(request.provision)
        )
    if request.HasField("binding"):
        directory = directory_of(request.binding)
        if request.binding.origin == binding_pb2.BINDING_ORIGIN_PROVISIONED:
            raise InvalidArgument.of("binding.origin", "must be SUPPLIED or absent")
        return Intent(project, workspace_id, session_id, Source.BINDING, LOCAL, directory, None)
    return Intent(project, workspace_id, session_id, Source.DEFAULT, LOCAL, "", None)


def directory_of(binding: binding_pb2.Binding) -> str:
    """The supplied directory; BindingUnresolved for all that cannot be supplied (T10)."""
    if binding.WhichOneof("kind") == "local":
        return check_text("binding.local.directory", binding.local.directory)
    raise _unresolved(binding)


def shown_binding(binding: binding_pb2.Binding) -> bindings.Binding:
    """A binding that a session has stored; BindingUnresolved for a kind that is not served (T10)."""
    match binding.WhichOneof("kind"):
        case "local":
            return bindings.LocalBinding(check_text("binding.local.directory", binding.local.directory))
        case "cloud":
            return bindings.CloudBinding(
                check_text("binding.cloud.provider", binding.cloud.provider),
                check_text("binding.cloud.workspace_ref", binding.cloud.workspace_ref),
            )
        case _:
            raise _unresolved(binding)


def binding(workspace: Workspace) -> binding_pb2.Binding:
    """What the session stores."""
    message = binding_pb2.Binding(origin=_origin(workspace.origin))
    match bindings.binding_of(workspace):
        case bindings.LocalBinding(directory=directory):
            message.local.directory = directory
        case bindings.CloudBinding(provider=provider, workspace_ref=workspace_ref):
            message.cloud.provider = provider
            message.cloud.workspace_ref = workspace_ref
    return message


def workspace(stored: Workspace) -> workspace_pb2.Workspace:
    """The contract's workspace."""
    return workspace_pb2.Workspace(
        project=stored.project,
        workspace_id=stored.workspace_id,
        session_id=stored.session_id,
        provider=stored.provider,
        origin=_origin(stored.origin),
        state=workspace_pb2.WorkspaceState.Value(f"WORKSPACE_STATE_{stored.state}"),
        state_reason=stored.state_reason,
        root=stored.root,
        instance_id=stored.instance_id,
        endpoint=stored.endpoint,
        token=stored.token,
        create_time=_timestamp(stored.create_time),
        update_time=_timestamp(stored.update_time),
        use_time=_moment(stored.use_time),
        delete_time=_moment(stored.delete_time),
        spec=spec(stored),
    )


def provider(which: Provider, engine: EngineState | None) -> workspace_pb2.Provider:
    """The contract's provider."""
    return workspace_pb2.Provider(
        name=which.name,
        enabled=which.enabled,
        root=which.root,
        default_directory=which.default_directory,
        images=which.images,
        limits=limits(which.limits) if which.images else None,
        unavailable_cause=which.unavailable_cause,
        withheld=bool(which.withheld),
        engine=None if engine is None else _engine(engine),
    )


def _engine(state: EngineState) -> workspace_pb2.Engine:
    return workspace_pb2.Engine(
        address=state.address,
        version=state.version,
        missing_images=state.missing_images,
        unavailable_cause=state.cause,
    )


def _unresolved(binding: binding_pb2.Binding) -> BindingUnresolved:
    kind = binding.WhichOneof("kind")
    return BindingUnresolved(kind=kind or "unknown", cause=_KINDS.get(kind or "", _UNKNOWN))


def _origin(origin: Origin) -> binding_pb2.BindingOrigin.ValueType:
    return binding_pb2.BindingOrigin.Value(f"BINDING_ORIGIN_{origin}")


def _moment(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else _timestamp(moment)


def _timestamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp
