"""What `run` was asked for and a session that exists already cannot become (its options are of its making)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.making import DOCKER, Making, network_name
from services.cli.options import Approval


class OtherSession(CommandFailed):
    """The session was made otherwise than it is asked for now."""

    exit = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for. `approval` is None, and fields of `agent` and `making` are empty, where nothing was."""

    agent: session_pb2.AgentSpec
    approval: Approval | None = None
    making: Making = field(default_factory=Making)

    def __bool__(self) -> bool:
        """Whether anything was asked for."""
        return self.approval is not None or self.agent != session_pb2.AgentSpec() or bool(self.making)

    @property
    def policy(self) -> turn_pb2.ApprovalPolicy.ValueType:
        """Of a new session."""
        return (self.approval or Approval.ask).message

    def check(self, session: session_pb2.Session, way_out: str) -> None:
        """Raise OtherSession at the first wish that the session does not fulfil."""
        for option, has, wanted in self._compared(session):
            if has != wanted:
                raise OtherSession(
                    f"{option}: session {session.session_id} was made with {has or 'none'}, and keeps it",
                    hint=f"without {option} it goes on as it is; {way_out}",
                )

    def _compared(self, session: session_pb2.Session) -> Iterator[tuple[str, str, str]]:
        """Each option that was given: its name, the session's value and the one that is wanted."""
        if self.approval is not None:
            yield "--approval", policy_name(session.approval_policy), self.approval.value
        for name in ("profile", "model", "mode"):
            if wanted := getattr(self.agent, name):
                yield f"--{name}", getattr(session.agent, name), wanted
        yield from _places(session, self.making)
        yield from _pairs("--agent-option", session.agent.options, self.agent.options)
        yield from _pairs("--secret", session.agent.secret_refs, self.agent.secret_refs)
        yield from _pairs("--mcp", _servers(session.agent), _servers(self.agent))


def policy_name(policy: turn_pb2.ApprovalPolicy.ValueType) -> str:
    """As `--approval` takes it."""
    return turn_pb2.ApprovalPolicy.Name(policy).removeprefix("APPROVAL_POLICY_").lower()


def _places(session: session_pb2.Session, making: Making) -> Iterator[tuple[str, str, str]]:
    if making.docker:
        yield "--docker", session.binding.cloud.provider or session.binding.local.directory, DOCKER
    workspace = session.workspace
    # Otherwise the workspace service could not be asked, and no turn will run without it.
    if workspace.state:
        if making.image:
            yield "--image", workspace.image, making.image
        if making.network:
            yield "--network", network_name(workspace.network), making.network.value
    for label, wanted in making.labels().items():
        yield f"--{label.removeprefix('moorage.')}", session.labels.get(label, ""), wanted


def _pairs(option: str, has: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, value in wanted.items():
        yield option, f"{name}={has[name]}" if name in has else "", f"{name}={value}"


def _servers(agent: session_pb2.AgentSpec) -> dict[str, str]:
    return {server.name: _target(server) for server in agent.mcp_servers}


def _target(server: session_pb2.McpServer) -> str:
    if server.HasField("stdio"):
        return " ".join((server.stdio.command, *server.stdio.args))
    return server.http.url or server.sse.url
