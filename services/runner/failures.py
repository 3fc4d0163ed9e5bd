"""What went wrong with an agent, as the ending of its turn."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.common.v1.provision_pb2 import NetworkPolicy
from moorage.common.v1.turn_pb2 import EndReason, TurnPhase

from services.common.errors import Internal, InvalidArgument, MoorageError
from services.common.logs import get_logger
from services.runner.acp.errors import (
    AgentAuthRequired,
    AgentError,
    AgentRefused,
    UnsupportedContent,
    UnsupportedServer,
)
from services.runner.clients.processes import ProcessEnd
from services.runner.endings import NOT_OURS, TurnAbandoned, TurnFailed
from services.runner.places import Place
from services.runner.profiles import Profile

_log: Final = get_logger(__name__)

_CODES: Final[Mapping[type[AgentError], str]] = {
    UnsupportedContent: "UNSUPPORTED_CONTENT",
    UnsupportedServer: "UNSUPPORTED_MCP_SERVER",
}
# How far it was tells the most about a turn that a fault of ours ended.
_FAULTS: Final[Mapping[TurnPhase.ValueType, EndReason.ValueType]] = {
    TurnPhase.TURN_PHASE_PROMPTED: EndReason.END_REASON_AGENT_PROTOCOL_ERROR,
    TurnPhase.TURN_PHASE_LOADING_SESSION: EndReason.END_REASON_AGENT_START_FAILED,
    TurnPhase.TURN_PHASE_STARTING_AGENT: EndReason.END_REASON_AGENT_START_FAILED,
}


def start_failure(error: MoorageError, install: str) -> TurnFailed:
    """The command could not be started, or not as its profile says, or the workspace went away; `install` says what may help.

    Raises TurnAbandoned where the fence refused it.
    """
    if error.reason in NOT_OURS:
        raise TurnAbandoned.after(error) from error
    not_startable = error.reason == ErrorReason.ERROR_REASON_EXEC_START_FAILED
    if not_startable or isinstance(error, InvalidArgument):
        return TurnFailed.because(EndReason.END_REASON_AGENT_START_FAILED, error, install=install)
    return TurnFailed.because(EndReason.END_REASON_WORKSPACE_LOST, error)


def check_network(profile: Profile, place: Place) -> None:
    """TurnFailed when the agent needs a network and its workspace has none."""
    if profile.network == "required" and place.network == NetworkPolicy.NETWORK_POLICY_NONE:
        raise TurnFailed(
            EndReason.END_REASON_PREPARE_FAILED,
            f"agents of the profile {profile.name} need a network, and that of the workspace is NONE",
            code="NETWORK_REQUIRED",
            profile=profile.name,
            network="NONE",
        )


def process_failure(end: ProcessEnd, stderr: str) -> TurnFailed:
    """The agent's process ended before the turn did; TurnAbandoned is raised where the fence ended it."""
    if end.error is not None:
        if end.error.reason in NOT_OURS:
            raise TurnAbandoned.after(end.error)
        return TurnFailed.because(EndReason.END_REASON_WORKSPACE_LOST, end.error, stderr=stderr)
    how = f"by signal {end.signal}" if end.signal else f"with exit code {end.exit_code}"
    why = " after the memory of its workspace was used up" if end.out_of_memory else ""
    return TurnFailed(
        EndReason.END_REASON_OUT_OF_MEMORY if end.out_of_memory else EndReason.END_REASON_AGENT_EXITED,
        f"the agent ended {how}{why}" + (f": {_last_line(stderr)}" if stderr else ""),
        exit_code=end.exit_code,
        signal=end.signal,
        stderr=stderr,
    )


def agent_failure(error: AgentError, stderr: str, login: str) -> TurnFailed:
    """The agent answered with an error, wants a login (`login` says how), or breaks its protocol."""
    if isinstance(error, AgentAuthRequired):
        methods = [asdict(method) for method in error.methods]
        return TurnFailed(
            EndReason.END_REASON_AGENT_AUTH_REQUIRED,
            str(error),
            methods=json.dumps(methods),
            login=login,
            stderr=stderr,
        )
    return TurnFailed(
        EndReason.END_REASON_AGENT_PROTOCOL_ERROR,
        str(error),
        code=_CODES.get(type(error), ""),
        stderr=stderr,
        **_details(error),
    )


def unexpected(error: BaseException, phase: TurnPhase.ValueType) -> TurnFailed:
    """A fault of this runner in this phase; it is logged, and the turn tells under which id."""
    error_id = secrets.token_hex(8)
    _log.error("a turn failed because of an unexpected error", error_id=error_id, exc_info=error)
    reason = _FAULTS.get(phase, EndReason.END_REASON_PREPARE_FAILED)
    return TurnFailed.because(reason, Internal(error_id=error_id))


def _details(error: AgentError) -> dict[str, object]:
    if not isinstance(error, AgentRefused):
        return {}
    data = "" if error.data is None else json.dumps(error.data)
    return {"method": error.method, "agent_code": error.code, "agent_message": error.message, "data": data}


def _last_line(text: str) -> str:
    return text.splitlines()[-1]
