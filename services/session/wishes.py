"""What CreateSession asks for, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.session.v1 import session_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_or_mint_id, check_present
from services.session import bindings
from services.session.agents import check_agent
from services.session.bindings import CloudBinding, ExternalBinding, LocalBinding
from services.session.checks import (
    check_approval_policy,
    check_labels,
    check_optional_name,
    stored,
)
from services.session.limits import check_limits
from services.session.retention import Retention, check_retention
from services.session.sessions import ApprovalPolicy, NewSession


@dataclass(frozen=True, slots=True)
class SessionWish:
    """A session that may be made: everything of it but its workspace."""

    project: str
    session_id: str
    labels: Mapping[str, str]
    agent: bytes
    profile: str
    approval_policy: ApprovalPolicy
    limits: bytes
    retention: Retention
    source: provision_pb2.ProvisionSpec | binding_pb2.Binding | None

    @property
    def network(self) -> provision_pb2.NetworkPolicy.ValueType:
        """What the workspace's processes are to reach; UNSPECIFIED where that was not said."""
        if isinstance(self.source, provision_pb2.ProvisionSpec):
            return self.source.network
        return provision_pb2.NETWORK_POLICY_UNSPECIFIED

    def provisioning(self, workspace_id: str) -> workspace_pb2.ProvisionWorkspaceRequest:
        """What the workspace service is asked for; without a source: its default directory."""
        source = self.source
        return workspace_pb2.ProvisionWorkspaceRequest(
            project=self.project,
            workspace_id=workspace_id,
            session_id=self.session_id,
            provision=source if isinstance(source, provision_pb2.ProvisionSpec) else None,
            binding=source if isinstance(source, binding_pb2.Binding) else None,
        )

    def draft(self, workspace_id: str, binding: bindings.Binding) -> NewSession:
        """What is stored once the workspace's intent is."""
        return NewSession(
            project=self.project,
            session_id=self.session_id,
            labels=self.labels,
            agent=self.agent,
            profile=self.profile,
            approval_policy=self.approval_policy,
            limits=self.limits,
            binding_kind=binding.kind,
            binding=bindings.message(binding).SerializeToString(),
            workspace_id=workspace_id,
            retention=self.retention.policy_for(binding),
            retention_ttl=self.retention.ttl,
        )


def check_wish(project: str, request: session_pb2.CreateSessionRequest, default_profile: str) -> SessionWish:
    """Check the whole request and fill in what it leaves out. Raises InvalidArgument, BindingUnresolved."""
    agent = check_agent("agent", request.agent, default_profile)
    return SessionWish(
        project=project,
        session_id=check_or_mint_id("session_id", request.session_id, "session"),
        labels=check_labels("labels", request.labels),
        agent=stored(agent),
        profile=agent.profile,
        approval_policy=check_approval_policy("approval_policy", request.approval_policy),
        limits=check_limits("limits", request.limits),
        retention=check_retention(request),
        source=_source(request),
    )


def _source(
    request: session_pb2.CreateSessionRequest,
) -> provision_pb2.ProvisionSpec | binding_pb2.Binding | None:
    match request.WhichOneof("workspace"):
        case "provision":
            return _provisioned(request.provision)
        case "binding":
            return _supplied(request.binding)
        case _:
            return None


def _provisioned(given: provision_pb2.ProvisionSpec) -> provision_pb2.ProvisionSpec:
    """As it was given: the workspace service judges it, in the same names."""
    check_optional_name("provision.provider", given.provider)
    asked = provision_pb2.ProvisionSpec()
    asked.CopyFrom(given)
    asked.DiscardUnknownFields()
    return asked


def _supplied(given: binding_pb2.Binding) -> binding_pb2.Binding:
    """A supplied binding; of the kinds only `local` can be resolved yet."""
    if given.WhichOneof("kind") is None:
        raise InvalidArgument.of("binding", "must have a kind")
    match bindings.from_message(given):
        case LocalBinding(directory=directory):
            check_present("binding.local.directory", directory)
            supplied = LocalBinding(bindings.Origin.SUPPLIED, directory)
            return bindings.message(supplied)
        case CloudBinding() | ExternalBinding() as binding:
            raise bindings.unresolved(binding.kind, "bindings of this kind are not served yet")
