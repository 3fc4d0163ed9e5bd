"""Users who are asked: they wait for questions, answer them, and look at what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from moorage.common.v1.record_pb2 import InteractionClosed, InteractionOutcome
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub
from moorage.session.v1 import session_pb2

from tests.conditions import eventually
from tests.runner.talks import PATIENCE, Talks

if TYPE_CHECKING:
    from moorage.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub

ANSWERED = InteractionOutcome.INTERACTION_OUTCOME_ANSWERED
CANCELLED = InteractionOutcome.INTERACTION_OUTCOME_CANCELLED
EXPIRED = InteractionOutcome.INTERACTION_OUTCOME_EXPIRED


class Users:
    """The users of one session."""

    def __init__(self, talks: Talks, session_id: str) -> None:
        self._talks = talks
        self._session_id = session_id

    async def questions(self, **selected: Any) -> list[session_pb2.Interaction]:
        """Their questions, oldest first."""
        request = session_pb2.ListInteractionsRequest(session_id=self._session_id, **selected)
        # The service may have been away a moment ago.
        call = self._talks.stub.ListInteractions(request, timeout=PATIENCE, wait_for_ready=True)
        return list((await call).interactions)

    async def asked(self, count: int = 1) -> list[session_pb2.Interaction]:
        """Their pending questions, once there are so many."""

        async def are_there() -> bool:
            return len(await self.questions(pending_only=True)) == count

        await eventually(are_there, within=PATIENCE, what=f"{count} questions wait")
        return await self.questions(pending_only=True)

    async def answer(
        self, question: session_pb2.Interaction, option_id: str, values: str = ""
    ) -> session_pb2.Interaction:
        """The question as it then stands."""
        request = session_pb2.AnswerInteractionRequest(
            session_id=self._session_id,
            interaction_id=question.interaction_id,
            option_id=option_id,
            values=values,
        )
        return (await self._talks.stub.AnswerInteraction(request, timeout=PATIENCE)).interaction

    async def standing(self) -> list[session_pb2.StandingAnswer]:
        """The standing answers in force, oldest first."""
        request = session_pb2.ListStandingAnswersRequest(session_id=self._session_id)
        found = await self._talks.stub.ListStandingAnswers(request, timeout=PATIENCE)
        return list(found.standing_answers)

    async def revoke(self, standing: session_pb2.StandingAnswer) -> session_pb2.StandingAnswer:
        """The standing answer as it then stands."""
        request = session_pb2.RevokeStandingAnswerRequest(
            session_id=self._session_id, standing_answer_id=standing.standing_answer_id
        )
        return (await self._talks.stub.RevokeStandingAnswer(request, timeout=PATIENCE)).standing_answer

    async def closed(self) -> list[InteractionClosed]:
        """The records of how questions were settled."""
        bodies = [record.body for record in await self._talks.records(self._session_id)]
        return [body.interaction_closed for body in bodies if body.HasField("interaction_closed")]


class Deliverer:
    """Tells a runner what was decided, as the session service does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: RunnerServiceAsyncStub = RunnerServiceStub(channel)

    async def __call__(
        self,
        question: session_pb2.Interaction,
        outcome: InteractionOutcome.ValueType,
        option_id: str = "",
        **changes: str,
    ) -> runner_pb2.DeliveryResult.ValueType:
        fields = {
            "project": "default",
            "session_id": question.session_id,
            "turn_id": question.turn_id,
            "interaction_id": question.interaction_id,
            "option_id": option_id,
            **changes,
        }
        request = runner_pb2.DeliverAnswerRequest(outcome=outcome, **fields)
        return (await self._stub.DeliverAnswer(request, timeout=PATIENCE)).result
