"""The rows of the table: the moments at which a Stop comes, and how a session is brought there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.common.v1.turn_pb2 import (
    APPROVAL_POLICY_ALLOW,
    APPROVAL_POLICY_ASK,
    TURN_PHASE_LOADING_SESSION,
    TURN_PHASE_PREPARING_WORKSPACE,
    TURN_PHASE_PROMPTED,
    TURN_PHASE_STARTING_AGENT,
    TURN_PHASE_UNSPECIFIED,
    TURN_PHASE_WAITING_FOR_RUNNER,
    TURN_STATE_ADMITTED,
    TURN_STATE_AWAITING_INPUT,
    TURN_STATE_COMPLETED,
    TURN_STATE_QUEUED,
    TURN_STATE_RUNNING,
    ApprovalPolicy,
    TurnPhase,
    TurnState,
)

# A tool that runs until the file GO is there, and says by the file AT that it has begun.
TOOL = "run touch AT; until test -e GO; do sleep 0.02; done"
QUESTION = "ask to run true"
WHO = "who are you"
# Longer than any of its Stops takes.
OUTPUT = "count to 250 every 0.01"


@dataclass(frozen=True, slots=True)
class Moment:
    """Where the turn is when the Stop comes.

    `gate` is the failpoint that holds it there. `shows` are its state and phase, which must be
    read back before the Stop is ordered. `is_cold`: no agent was kept from the turn before.
    """

    name: str
    prompt: str
    gate: str = ""
    shows: tuple[TurnState.ValueType, TurnPhase.ValueType] | None = None
    policy: ApprovalPolicy.ValueType = APPROVAL_POLICY_ALLOW
    is_cold: bool = False
    # The turn waits behind another one.
    is_queued: bool = False
    # The runner is killed at this moment.
    is_killed: bool = False
    # The runner stays held until the Stop was given up on.
    is_hung: bool = False

    @property
    def has_turn(self) -> bool:
        """Whether there is a turn at this moment."""
        return bool(self.prompt)


_PROMPTED = (TURN_STATE_RUNNING, TURN_PHASE_PROMPTED)

MOMENTS: Sequence[Moment] = (
    Moment("no turn", ""),
    Moment("queued", "say done", shows=(TURN_STATE_QUEUED, TURN_PHASE_UNSPECIFIED), is_queued=True),
    Moment(
        "admitted",
        "say done",
        "runner.begin_turn.before",
        (TURN_STATE_ADMITTED, TURN_PHASE_WAITING_FOR_RUNNER),
    ),
    Moment(
        "admitted without a lease",
        WHO,
        "runner.dispatch.registered",
        (TURN_STATE_ADMITTED, TURN_PHASE_WAITING_FOR_RUNNER),
        is_cold=True,
    ),
    Moment(
        "preparing",
        WHO,
        "runner.workspace.before_claim",
        (TURN_STATE_RUNNING, TURN_PHASE_PREPARING_WORKSPACE),
        is_cold=True,
    ),
    Moment(
        "starting",
        WHO,
        "runner.agent.before_open",
        (TURN_STATE_RUNNING, TURN_PHASE_STARTING_AGENT),
        is_cold=True,
    ),
    Moment(
        "loading",
        WHO,
        "runner.session.before_load",
        (TURN_STATE_RUNNING, TURN_PHASE_LOADING_SESSION),
        is_cold=True,
    ),
    Moment("output", OUTPUT, "runner.output.recorded", _PROMPTED),
    Moment("in a tool", TOOL, "runner.tool.recorded", _PROMPTED),
    Moment("before a question", QUESTION, "runner.question.before_open", _PROMPTED, APPROVAL_POLICY_ASK),
    Moment(
        "awaiting input",
        QUESTION,
        shows=(TURN_STATE_AWAITING_INPUT, TURN_PHASE_PROMPTED),
        policy=APPROVAL_POLICY_ASK,
    ),
    Moment("finishing", "say done", "runner.finish_turn.before", _PROMPTED),
    Moment(
        "just finished",
        "say done",
        "runner.finish_turn.after",
        (TURN_STATE_COMPLETED, TURN_PHASE_UNSPECIFIED),
    ),
    Moment("runner dead", TOOL, "runner.tool.recorded", _PROMPTED, is_killed=True),
    Moment("runner hung", "say done", "runner.finish_turn.before", _PROMPTED, is_hung=True),
)
