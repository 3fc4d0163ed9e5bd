"""What the runner does with what an agent says: records of the turn, questions, errands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from moorage.common.v1.record_pb2 import RecordBody
from moorage.common.v1.turn_pb2 import ApprovalPolicy
from moorage.session.v1.session_pb2 import AgentSpec

from services.common.clock import Clock
from services.common.failpoints import failpoint
from services.common.validation import mint_id
from services.runner.acp.asked import to_form, to_question
from services.runner.acp.coalescer import Coalescer
from services.runner.acp.elicitation import DECLINE, Elicitation, ElicitationOutcome, elicited
from services.runner.acp.lines import Message
from services.runner.acp.messages import PermissionOutcome, PermissionRequest, SessionUpdate
from services.runner.acp.records import asked_tool, to_body
from services.runner.acp.requests import ClientRequest
from services.runner.approvals import choose
from services.runner.asking import Asking
from services.runner.displays import Displays
from services.runner.errands import Errands
from services.runner.interrupts import background
from services.runner.limits import LimitWatch
from services.runner.places import Place
from services.runner.profiles import Profile
from services.runner.questions import derived
from services.runner.records import RecordBuffer, error_body

_MOST_TOOLS: Final = 1000


class _Tool(NamedTuple):
    """What users are told of a tool call that they are asked about."""

    title: str
    kind: str


class TurnListener:
    """Listens to an agent for one turn; what is said outside of a turn belongs to none."""

    def __init__(
        self,
        policy: ApprovalPolicy.ValueType,
        limits: LimitWatch,
        records: RecordBuffer,
        clock: Clock,
        *,
        turn_id: str,
        asking: Asking,
        errands: Errands,
    ) -> None:
        """Records go to the buffer, merged where they are pieces of one text."""
        self._policy = policy
        self._turn_id = turn_id
        self._limits = limits
        self._text = Coalescer(records.add, clock)
        self._asking = asking
        self._errands = errands
        self._displays = Displays(errands.said)
        self._tools: dict[str, _Tool] = {}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Let text out in time; all of it is out when the block has been left without an error."""
        async with background(self._text.run()):
            yield
        await self._text.flush()

    def serve(self, place: Place, profile: Profile, agent: AgentSpec) -> None:
        """From now on the agent can have things done in this place."""
        self._errands.open(place, profile, agent)

    async def tell(self, bodies: Iterable[RecordBody]) -> None:
        """Record what was learnt of the agent otherwise."""
        for body in bodies:
            await self._text.put(body)

    async def on_update(self, update: SessionUpdate) -> None:
        """See AgentHandler: record it, unless it is history."""
        body = None if update.replayed else _recorded(partial(to_body, update))
        if body is not None:
            self._limits.count(body)
            self._note_tool(body)
            self._displays.fill(body)
            await self._text.put(body)
            kind = "tool" if body.HasField("tool_call") else "output"
            await failpoint(f"runner.{kind}.recorded", self._turn_id)

    async def on_permission(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        """See AgentHandler: answer at once by the policy, or have users asked."""
        if self._policy == ApprovalPolicy.APPROVAL_POLICY_ASK:
            return await self._ask(request)
        answer: asyncio.Future[PermissionOutcome] = asyncio.get_running_loop().create_future()
        answer.set_result(choose(self._policy, request.options))
        return answer

    async def on_elicitation(self, request: Elicitation) -> Awaitable[ElicitationOutcome]:
        """See AgentHandler: no policy fills in a form, but one that denies declines it."""
        if self._policy == ApprovalPolicy.APPROVAL_POLICY_DENY:
            answer: asyncio.Future[ElicitationOutcome] = asyncio.get_running_loop().create_future()
            answer.set_result(elicited(DECLINE, ""))
            return answer
        await failpoint("runner.question.asked", self._turn_id)
        await self._text.flush()
        question = await self._asking.ask(to_form(request, mint_id("interaction")))
        return derived(question.answer, lambda option_id: elicited(option_id, question.values))

    async def on_request(self, request: ClientRequest) -> Awaitable[Message]:
        """See AgentHandler."""
        return self._errands.begin(request)

    async def _ask(self, request: PermissionRequest) -> Awaitable[PermissionOutcome]:
        await failpoint("runner.question.asked", self._turn_id)
        call_id = request.tool_call.tool_call_id
        known = self._tools.get(call_id, _Tool("", ""))
        title = request.tool_call.title or known.title or f"tool call {call_id}"
        kind = request.tool_call.kind or known.kind
        question = to_question(request, mint_id("interaction"), title, kind)
        if call_id not in self._tools and (body := _recorded(partial(asked_tool, request))):
            # Users have not seen what they are asked about.
            self._tools[call_id] = _Tool(title, kind)
            await self._text.put(body)
        await self._text.flush()
        return (await self._asking.ask(question)).answer

    def _note_tool(self, body: RecordBody) -> None:
        if body.HasField("tool_call"):
            self._tools[body.tool_call.tool_call_id] = _Tool(body.tool_call.title, body.tool_call.kind)
        elif body.HasField("tool_update"):
            update = body.tool_update
            known = self._tools.get(update.tool_call_id, _Tool("", ""))
            if update.title or update.kind:
                told = _Tool(update.title or known.title, update.kind or known.kind)
                self._tools[update.tool_call_id] = told
        if len(self._tools) > _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]


def _recorded(convert: Callable[[], RecordBody | None]) -> RecordBody | None:
    try:
        return convert()
    except ValueError as error:
        # E.g. lone surrogates, which JSON can say and nothing can store.
        return error_body("RECORD_NOT_STORABLE", f"what the agent tells cannot be stored: {error}")
