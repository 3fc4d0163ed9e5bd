"""Run metadata (T9): under which circumstances a turn runs, made in one place."""

from __future__ import annotations

from typing import Final

from moorage.common.v1 import turn_pb2
from moorage.common.v1.binding_pb2 import (
    PLACEMENT_CLOUD_WORKSPACE,
    PLACEMENT_LOCAL_ATTACHED,
    PLACEMENT_SERVER_EMBEDDED,
    PLACEMENT_UNSPECIFIED,
    Placement,
)
from moorage.session.v1 import journal_pb2

from services.session import bindings
from services.session.bindings import Binding, CloudBinding, ExternalBinding, LocalBinding
from services.session.limits import LimitDefaults, limits_in_force
from services.session.sessions import Session
from services.session.turns import Turn

_PLACEMENTS: Final = {
    LocalBinding.kind: PLACEMENT_SERVER_EMBEDDED,
    CloudBinding.kind: PLACEMENT_CLOUD_WORKSPACE,
    ExternalBinding.kind: PLACEMENT_LOCAL_ATTACHED,
}
# version-traceid-parentid-flags, of 2, 32, 16 and 2 hex digits
_TRACE_ID: Final = slice(3, 35)


def placement_of(binding_kind: str) -> Placement.ValueType:
    """Where the agent's process runs; UNSPECIFIED for a kind that this version does not know."""
    return _PLACEMENTS.get(binding_kind, PLACEMENT_UNSPECIFIED)


def run_metadata(
    session: Session,
    turn: Turn,
    observation: journal_pb2.RunObservation,
    defaults: LimitDefaults,
) -> turn_pb2.RunMetadata:
    """What is stored with a begun turn: from its rows and what its runner has learnt so far."""
    binding = bindings.load(session.binding_kind, session.binding)
    return turn_pb2.RunMetadata(
        profile=session.profile,
        provider=observation.provider,
        model=observation.model,
        agent=observation.agent,
        approval_policy=turn_pb2.ApprovalPolicy.Value(f"APPROVAL_POLICY_{session.approval_policy}"),
        limits=limits_in_force(session.limits, defaults),
        binding_kind=session.binding_kind,
        placement=placement_of(session.binding_kind),
        workspace_provider=_workspace_provider(binding, observation),
        executor_kind=binding.executor_kind if isinstance(binding, ExternalBinding) else "",
        worker_pool=binding.worker_pool if isinstance(binding, ExternalBinding) else "",
        workspace_ref=None if isinstance(binding, LocalBinding) else binding.workspace_ref,
        resume_kind=observation.resume_kind,
        resume_reason=observation.resume_reason,
        previous_turn_id=turn.previous_turn_id,
        runner_id=turn.runner_id or "",
        token=turn.token or 0,
        trace_id=turn.traceparent[_TRACE_ID],
    )


def _workspace_provider(binding: Binding, observation: journal_pb2.RunObservation) -> str:
    if isinstance(binding, ExternalBinding):
        return ""
    declared = binding.provider if isinstance(binding, CloudBinding) else ""
    return observation.workspace_provider or declared
