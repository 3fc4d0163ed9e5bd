"""How an agent comes to what was said before: it still knows, it loads, it is told, or nothing was said (T7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.turn_pb2 import ResumeKind
from moorage.session.v1.journal_pb2 import BeginTurnResponse, RunObservation
from moorage.session.v1.session_pb2 import McpServer

from services.runner.acp.connection import AgentConnection
from services.runner.acp.errors import AgentAuthRequired, AgentProtocolError, AgentRefused
from services.runner.acp.lines import Message
from services.runner.acp.messages import AgentInfo, NativeSession
from services.runner.acp.servers import acp_servers
from services.runner.clients.journal import TurnJournal
from services.runner.history import tell
from services.runner.runtimes import Runtime
from services.runner.texts import storable


@dataclass(frozen=True, slots=True)
class Resumed:
    """The native session for a prompt; `context` goes before it."""

    kind: ResumeKind.ValueType
    reason: str
    native: NativeSession
    context: tuple[Message, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether the native session knows what was said only once it has the prompt."""
        return bool(self.context)

    @property
    def observation(self) -> RunObservation:
        """What is stored with the turn before its prompt is sent."""
        return RunObservation(
            resume_kind=self.kind,
            resume_reason=storable(self.reason),
            native_session_id="" if self.is_told else storable(self.native.id),
            model=storable(self.native.offers.model),
        )


def resumed_warm(runtime: Runtime | None) -> Resumed | None:
    """The agent of the turn before was there all the time; None without one that has a session."""
    if runtime is None or runtime.native is None or runtime.info is None:
        return None
    return Resumed(ResumeKind.RESUME_KIND_WARM, "the agent of the turn before was kept warm", runtime.native)


def observed(runtime: Runtime, info: AgentInfo, resumed: Resumed) -> RunObservation:
    """What is known of an agent when it gets its prompt."""
    observation = RunObservation(agent=named(info), workspace_provider=runtime.place.provider)
    observation.MergeFrom(resumed.observation)
    return observation


def observed_warm(runtime: Runtime | None) -> RunObservation | None:
    """The same of an agent that was kept, before the turn begins; None without one."""
    resumed = resumed_warm(runtime)
    return observed(runtime, runtime.info, resumed) if resumed and runtime and runtime.info else None


def named(info: AgentInfo) -> str:
    """An agent's own name and version."""
    return storable(f"{info.name} {info.version}".strip())


class Resumption:
    """Opens the native session of a turn in an agent that was just started."""

    def __init__(
        self,
        begun: BeginTurnResponse,
        servers: Iterable[McpServer],
        journal: TurnJournal,
        history_bytes: int,
    ) -> None:
        """`servers` are those that the agent is told of; at most so many bytes of history are told."""
        self._native_session_id: Final = begun.native_session_id
        self._is_first = not begun.previous_turn_id
        self._servers = servers
        self._journal = journal
        self._history_bytes = history_bytes

    async def run(self, runtime: Runtime, info: AgentInfo, timeout: float) -> Resumed:
        """Load what was, or open a new session and tell it. `timeout` bounds each request, in seconds."""
        connection, directory = runtime.connection, runtime.place.root
        servers = acp_servers(self._servers, info.capabilities)
        try:
            native = await self._load(connection, info, directory, servers, timeout)
        except _NotLoaded as cause:
            native = await connection.new_session(directory, servers, timeout=timeout)
            return await self._told(native, str(cause))
        return Resumed(ResumeKind.RESUME_KIND_LOADED, "the agent loaded its session of before", native)

    async def _load(
        self,
        connection: AgentConnection,
        info: AgentInfo,
        directory: str,
        servers: Sequence[Message],
        timeout: float,
    ) -> NativeSession:
        if not self._native_session_id:
            raise _NotLoaded("no session of the agent is known")
        if not info.capabilities.load_session:
            raise _NotLoaded("the agent cannot load a session")
        try:
            return await connection.load_session(self._native_session_id, directory, servers, timeout=timeout)
        except AgentAuthRequired:
            raise
        except (AgentRefused, AgentProtocolError) as error:
            raise _NotLoaded(f"the agent could not load its session: {error}") from error

    async def _told(self, native: NativeSession, cause: str) -> Resumed:
        if self._is_first:
            return Resumed(ResumeKind.RESUME_KIND_FRESH, "first turn", native)
        history = await self._journal.history(self._history_bytes)
        text = tell(history.records, self._history_bytes, truncated=history.truncated)
        if not text:
            reason = f"{cause}, and nothing was said before"
            return Resumed(ResumeKind.RESUME_KIND_FRESH, reason, native)
        reason = f"{cause}, so it was told the transcript"
        return Resumed(
            ResumeKind.RESUME_KIND_RECONSTRUCTED, reason, native, ({"type": "text", "text": text},)
        )


class _NotLoaded(Exception):
    """Why there is a new native session."""
