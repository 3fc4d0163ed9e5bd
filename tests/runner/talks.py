"""What a client does with sessions, and what it can say about a transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from moorage.common.v1 import turn_pb2
from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.record_pb2 import Record
from moorage.session.v1 import session_pb2
from moorage.session.v1.session_pb2_grpc import SessionServiceStub

from services.common.project import PROJECT_KEY
from tests.conditions import eventually

if TYPE_CHECKING:
    from moorage.session.v1.session_pb2_grpc import SessionServiceAsyncStub

PATIENCE = 30.0


class Talks:
    """Calls of one project."""

    def __init__(self, channel: grpc.aio.Channel, project: str = "default") -> None:
        self._channel = channel
        self.stub: SessionServiceAsyncStub = SessionServiceStub(channel)
        # Services that restart are waited for.
        self._options: dict[str, Any] = {
            "timeout": PATIENCE,
            "wait_for_ready": True,
            "metadata": ((PROJECT_KEY, project),),
        }

    def of(self, project: str) -> Talks:
        """A client of another project."""
        return Talks(self._channel, project)

    async def create(self, session_id: str, **fields: Any) -> session_pb2.Session:
        """A session that allows everything, unless said otherwise."""
        fields.setdefault("approval_policy", turn_pb2.APPROVAL_POLICY_ALLOW)
        profile = fields.pop("profile", "demo")
        variables = {name: fields.pop(name, {}) for name in ("environment", "secret_refs")}
        agent = session_pb2.AgentSpec(profile=profile, **variables)
        request = session_pb2.CreateSessionRequest(session_id=session_id, agent=agent, **fields)
        return (await self.stub.CreateSession(request, **self._options)).session

    async def session(self, session_id: str) -> session_pb2.Session:
        """As it stands."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        return (await self.stub.GetSession(request, **self._options)).session

    async def start(self, session_id: str, turn_id: str, prompt: str, *more: Any) -> session_pb2.Turn:
        """A turn, admitted."""
        blocks = [ContentBlock(text=TextContent(text=prompt)), *(ContentBlock(**block) for block in more)]
        request = session_pb2.StartTurnRequest(session_id=session_id, turn_id=turn_id, prompt=blocks)
        return (await self.stub.StartTurn(request, **self._options)).turn

    async def turn(self, session_id: str, turn_id: str) -> session_pb2.Turn:
        """As it stands."""
        request = session_pb2.GetTurnRequest(session_id=session_id, turn_id=turn_id)
        return (await self.stub.GetTurn(request, **self._options)).turn

    async def ended(self, session_id: str, turn_id: str, within: float = PATIENCE) -> session_pb2.Turn:
        """The turn, once it has ended."""

        async def has_ended() -> bool:
            return (await self.turn(session_id, turn_id)).HasField("end_time")

        await eventually(has_ended, within=within, what=f"turn {turn_id} ended")
        return await self.turn(session_id, turn_id)

    async def run(self, session_id: str, turn_id: str, prompt: str) -> session_pb2.Turn:
        """A turn from its start to its end."""
        await self.start(session_id, turn_id, prompt)
        return await self.ended(session_id, turn_id)

    async def close(self, session_id: str) -> session_pb2.Session:
        """The session, once it is CLOSED."""
        request = session_pb2.CloseSessionRequest(session_id=session_id, wait=True)
        return (await self.stub.CloseSession(request, **self._options)).session

    async def delete(self, session_id: str) -> None:
        """Return when nothing of the session is left."""
        request = session_pb2.DeleteSessionRequest(session_id=session_id, wait=True)
        await self.stub.DeleteSession(request, **self._options)

    async def stop(self, session_id: str, turn_id: str = "") -> session_pb2.Command:
        """The command of a Stop, as it was stored."""
        request = session_pb2.StopTurnRequest(session_id=session_id, expected_turn_id=turn_id)
        return (await self.stub.StopTurn(request, **self._options)).command

    async def records(self, session_id: str, turn_id: str = "") -> list[Record]:
        """The transcript, or a turn's part of it."""
        records: list[Record] = []
        after, head = 0, 1
        while after < head:
            request = session_pb2.ListRecordsRequest(session_id=session_id, after_seq=after, page_size=1000)
            page = await self.stub.ListRecords(request, **self._options)
            records += page.records
            after, head = page.next_after_seq, page.head_seq
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        return [record for record in records if not turn_id or record.turn_id == turn_id]

    async def said(self, session_id: str, turn_id: str) -> str:
        """The agent's answer."""
        return text_of(await self.records(session_id, turn_id))

    async def says(self, session_id: str, turn_id: str, text: str) -> str:
        """The agent's answer, once it contains this."""

        async def has_said() -> bool:
            return text in await self.said(session_id, turn_id)

        await eventually(has_said, within=PATIENCE, what=f"{text!r} was said in turn {turn_id}")
        return await self.said(session_id, turn_id)


def kinds_of(records: list[Record]) -> list[str]:
    """What the records are."""
    return [record.body.WhichOneof("body") or "" for record in records]


def text_of(records: list[Record]) -> str:
    """The answer in the records."""
    return "".join(record.body.agent_message.content.text.text for record in records)
