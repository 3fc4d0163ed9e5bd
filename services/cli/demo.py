"""The main job, step by step; whatever is told is read back and compared first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from moorage.common.v1 import provision_pb2, record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.cli import readiness
from services.cli.connection import Connection
from services.cli.failures import CommandFailed
from services.cli.patience import Patience
from services.cli.questions import answer as send_answer
from services.cli.questions import option_of
from services.cli.records import stored_records
from services.cli.sights import OnThisMachine, Sight, ThroughTheAgent, shown_by
from services.cli.stopping import settled, stop, told
from services.cli.transcript import reason_name, state_name
from services.cli.turns import TurnStream
from services.common.status import from_rpc_error

Tell = Callable[[str, str], None]
NUMBERS = 20
PROOF = "proof.txt"
_LEFT_WITHIN = 5.0


class DemoFailed(CommandFailed):
    """Something is not as the demo says."""


@dataclass(slots=True)
class Demo:
    """A demonstration on running services; `remote` ones have their workspaces where this process cannot look.

    `tell` hears what was shown, `hint` what is waited for.
    """

    connection: Connection
    tell: Tell
    hint: Callable[[str], None]
    provider: str = "local"
    remote: bool = False
    # Containers are made in seconds, also on a slow machine; an engine that cannot be used stays so.
    ready_within: float = 60.0
    session_id: str = ""
    directory: Path | None = None
    streamed: list[record_pb2.Record] = field(default_factory=list)

    async def run(self) -> None:
        """Do every step; DemoFailed at the first thing that is not so."""
        try:
            await self.create_session()
            await self.stream_a_turn()
            await self.call_a_tool()
            await self.count()
            await self.ask_for_approval()
            await self.stop_and_go_on_warm()
            await self.read_back()
            await self.ask_for_nothing()
            await self.close()
        except BaseException:
            await self._leave()
            raise

    async def create_session(self) -> None:
        """A session, read back."""
        request = session_pb2.CreateSessionRequest(
            agent=session_pb2.AgentSpec(profile="demo"),
            approval_policy=turn_pb2.APPROVAL_POLICY_ASK,
            labels={"made-by": "demo"},
            provision=provision_pb2.ProvisionSpec(provider=self.provider),
        )
        made = await self.connection.sessions.CreateSession(request, metadata=self.connection.metadata)
        self.session_id = made.session.session_id
        session = await readiness.settled(
            self.connection, self.session_id, self.hint, within=self.ready_within
        )
        check(session.labels["made-by"] == "demo", "the session has its label", session.labels)
        is_ready = session.workspace.state == "READY"
        check(is_ready, "its workspace is ready", readiness.described(session.workspace))
        if not self.remote:
            self.directory = Path(session.binding.local.directory)
            check(self.directory.is_dir(), "its workspace was made", session.binding)
        place = self.directory or f"{session.workspace.workspace_id} ({self.provider})"
        self.tell("session", f"{self.session_id} works in {place}")

    async def stream_a_turn(self) -> None:
        """Text as it comes, in pieces."""
        turn, records = await self._turn("say Hello from a session that outlives its processes")
        said = text_of(records)
        check(said == "Hello from a session that outlives its processes", "the agent's words arrived", said)
        check(turn.metadata.profile == "demo", "the turn says what ran it", turn.metadata)
        pieces = sum(record.body.HasField("agent_message") for record in records)
        self.tell("turn", f"{said!r} in {pieces} piece(s), driven by {turn.metadata.runner_id}")

    async def call_a_tool(self) -> None:
        """A shell command in the workspace."""
        _, records = await self._turn(f"run echo moored > {PROOF} && cat {PROOF}")
        calls = [record.body.tool_call for record in records if record.body.HasField("tool_call")]
        ends = [
            record.body.tool_update
            for record in records
            if record.body.tool_update.status == record_pb2.TOOL_CALL_STATUS_COMPLETED
        ]
        check(len(calls) == 1 and len(ends) == 1, "one tool call began and ended well", records)
        shown = shown_by(ends[0])
        check("moored" in shown, "the tool's output is in the transcript", shown)
        wrote = await self._sight.read(PROOF)
        check(wrote == "moored\n", f"{PROOF} is in the workspace", wrote)
        self.tell("tool call", f"{calls[0].title} wrote {PROOF} into the workspace")

    async def count(self) -> None:
        """One more turn of the same session."""
        turn, records = await self._turn(f"count to {NUMBERS} into numbers.log")
        counted = text_of(records).split()
        logged = (await self._sight.read("numbers.log") or "").split()
        check(counted == logged and len(logged) == NUMBERS, "the transcript equals the agent's log", counted)
        check(turn.metadata.previous_turn_id != "", "the turn knows the one before it", turn.metadata)
        self.tell("next turn", f"counted to {counted[-1]}; the transcript equals the agent's own log")

    async def ask_for_approval(self) -> None:
        """A question to the user: yes runs the tool, no does not."""
        for word, ran in (("approve", True), ("deny", False)):
            turn, records = await self._turn(f"ask to run touch {word}.txt", answer=word)
            closed = [r.body.interaction_closed for r in records if r.body.HasField("interaction_closed")]
            answered = [c.outcome == record_pb2.INTERACTION_OUTCOME_ANSWERED for c in closed]
            check(answered == [True], "the question was answered once", closed)
            found = await self._sight.read(f"{word}.txt") is not None
            check(found is ran, f"{word} was obeyed", turn.turn_id)
        self.tell("approval", "the agent asked: approved, the tool ran; denied, it did not")

    async def stop_and_go_on_warm(self) -> None:
        """A Stop in the middle; the next turn has the same process, which remembers."""
        await self._turn("remember the harbour is called Moorage")
        before = await self._identity()
        stream = TurnStream(self.connection, self.session_id, "count to 100000 every 0.05", Patience())
        command: session_pb2.Command | None = None
        ended = session_pb2.Turn()
        async for event in stream.events():
            if event.HasField("record"):
                self.streamed.append(event.record)
            if command is None and event.record.body.HasField("agent_message"):
                command = await stop(self.connection, self.session_id, stream.turn_id)
            if event.HasField("ended"):
                ended = event.ended
        check(command is not None, "the turn was stopped while the agent spoke", stream.turn_id)
        check(ended.state == turn_pb2.TURN_STATE_STOPPED, "the turn is STOPPED", state_name(ended.state))
        outcome = await settled(self.connection, command or session_pb2.Command())
        applied = outcome.state == session_pb2.COMMAND_STATE_APPLIED
        check(applied, "the order was carried out", outcome)
        check(outcome.runtime_after == turn_pb2.RUNTIME_AFTER_WARM, "the agent stayed", outcome)
        self.tell("stop", told(outcome))
        recalled, records = await self._turn("recall")
        warm = recalled.metadata.resume_kind == turn_pb2.RESUME_KIND_WARM
        check(warm, "the next turn went on warm", recalled.metadata)
        check("the harbour is called Moorage" in text_of(records), "the agent remembers", text_of(records))
        after = await self._identity()
        check(before == after, "it is the same process and native session", (before, after))
        self.tell("warm", f"the next turn remembers, in the same agent process ({after})")

    async def read_back(self) -> None:
        """The stored transcript against what was streamed."""
        stored = [record async for record in stored_records(self.connection, self.session_id, 0)]
        check(stored == self.streamed, "what is stored equals what was streamed", len(stored))
        seqs = [record.seq for record in stored]
        check(seqs == list(range(1, len(seqs) + 1)), "records are numbered without gaps", seqs)
        session = await self._session()
        check(session.head_seq == len(stored), "the session knows its last record", session.head_seq)
        check(not session.HasField("turn"), "nothing is in progress any more", session.turn)
        self.tell("transcript", f"{len(stored)} records, 1 to {seqs[-1]} without a gap, equal to the stream")

    async def ask_for_nothing(self) -> None:
        """An error that programs can read."""
        request = session_pb2.GetSessionRequest(session_id="nowhere")
        try:
            await self.connection.sessions.GetSession(request, metadata=self.connection.metadata)
        except grpc.aio.AioRpcError as refused:
            error = from_rpc_error(refused)
            check(error.reason_name == "SESSION_NOT_FOUND", "a missing session has its reason", error)
            self.tell("error", f"{refused.code().name} / {error.reason_name}: {error}")
        else:
            raise DemoFailed("a session that does not exist was found")

    async def close(self) -> None:
        """The end: agent, lease and workspace are gone; the transcript stays."""
        request = session_pb2.CloseSessionRequest(session_id=self.session_id, wait=True)
        closed = await self.connection.sessions.CloseSession(request, metadata=self.connection.metadata)
        is_closed = closed.session.state == session_pb2.SESSION_STATE_CLOSED
        check(is_closed, "the session is closed", closed.session.operation)
        session = await self._session()
        is_gone = session.workspace.state == "DELETED" and not (self.directory and self.directory.exists())
        check(is_gone, "the workspace that was made for it is gone", session.workspace)
        check(not session.HasField("lease"), "nobody drives it any more", session.lease)
        stored = [record async for record in stored_records(self.connection, self.session_id, 0)]
        check(stored == self.streamed, "its transcript can still be read", len(stored))
        self.tell("close", f"closed; its workspace is gone, its {len(stored)} records can still be read")

    async def _leave(self) -> None:
        """Services that go on without us are not to keep what nobody will use."""
        if not self.remote or not self.session_id:
            return
        request = session_pb2.CloseSessionRequest(session_id=self.session_id)
        with contextlib.suppress(grpc.aio.AioRpcError):
            metadata = self.connection.metadata
            await self.connection.sessions.CloseSession(request, metadata=metadata, timeout=_LEFT_WITHIN)
            self.hint(f"session {self.session_id} is being closed; `moorage session get` tells of it")

    @property
    def _sight(self) -> Sight:
        return OnThisMachine(self.directory) if self.directory else ThroughTheAgent(self._records_of)

    async def _records_of(self, prompt: str) -> list[record_pb2.Record]:
        return (await self._turn(prompt))[1]

    async def _identity(self) -> str:
        """Process id and native session of the agent, in its own words."""
        _, records = await self._turn("who are you")
        return " ".join(line.strip() for line in text_of(records).splitlines() if "trace" not in line)

    async def _session(self) -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session_id=self.session_id)
        answer = await self.connection.sessions.GetSession(request, metadata=self.connection.metadata)
        return answer.session

    async def _turn(
        self, prompt: str, *, answer: str = ""
    ) -> tuple[session_pb2.Turn, list[record_pb2.Record]]:
        stream = TurnStream(self.connection, self.session_id, prompt, Patience())
        events = []
        async for event in stream.events():
            events.append(event)
            if event.record.body.HasField("interaction_opened"):
                await self._answer(event.record.body.interaction_opened, answer)
        records = [event.record for event in events if event.HasField("record")]
        turn = events[-1].ended
        seen = f"{state_name(turn.state)} ({reason_name(turn.end_reason)}) {turn.error.message}"
        check(turn.state == turn_pb2.TURN_STATE_COMPLETED, "the turn completed", seen)
        check(events[0].admitted.turn_id == stream.turn_id, "the first message names the turn", events[0])
        check(records[-1].body.HasField("turn_ended"), "the last record is its end", records[-1])
        self.streamed.extend(records)
        return turn, records

    async def _answer(self, asked: record_pb2.InteractionOpened, word: str) -> None:
        option_id = option_of(list(asked.options), word)
        if option_id is None:
            raise DemoFailed(f"the agent does not offer to {word}: {asked.options}")
        await send_answer(self.connection, self.session_id, asked.interaction_id, option_id)


def text_of(records: list[record_pb2.Record]) -> str:
    """What the agent said in these records."""
    return "".join(record.body.agent_message.content.text.text for record in records)


def check(true: bool, claim: str, seen: object) -> None:
    """Insist on a claim."""
    if not true:
        raise DemoFailed(f"not so: {claim}; seen: {seen}")
