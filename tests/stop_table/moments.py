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

    `gate` is the failpoint that holds it there. Its state and phase must be read back before the
    Stop is ordered; None is any phase. `is_cold`: no agent was kept from the turn before.
    """

    name: str
    prompt: str
    gate: str = ""
    state: TurnState.ValueType | None = None
    phase: TurnPhase.ValueType | None = None
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


MOMENTS: Sequence[Moment] = (
    Moment("no turn", ""),
    Moment("queued", "say done", state=TURN_STATE_QUEUED, is_queued=True),
    Moment(
        "admitted",
        "say done",
        "runner.begin_turn.before",
        state=TURN_STATE_ADMITTED,
        phase=TURN_PHASE_WAITING_FOR_RUNNER,
    ),
    Moment(
        "admitted without a lease",
        WHO,
        "runner.dispatch.registered",
        state=TURN_STATE_ADMITTED,
        phase=TURN_PHASE_WAITING_FOR_RUNNER,
        is_cold=True,
    ),
    Moment(
        "preparing",
        WHO,
        "runner.workspace.before_claim",
        state=TURN_STATE_RUNNING,
        phase=TURN_PHASE_PREPARING_WORKSPACE,
        is_cold=True,
    ),
    Moment(
        "starting",
        WHO,
        "runner.agent.before_open",
        state=TURN_STATE_RUNNING,
        phase=TURN_PHASE_STARTING_AGENT,
        is_cold=True,
    ),
    Moment(
        "loading",
        WHO,
        "runner.session.before_load",
        state=TURN_STATE_RUNNING,
        phase=TURN_PHASE_LOADING_SESSION,
        is_cold=True,
    ),
    Moment("output", OUTPUT, "runner.output.recorded", state=TURN_STATE_RUNNING, phase=TURN_PHASE_PROMPTED),
    Moment("in a tool", TOOL, "runner.tool.recorded", state=TURN_STATE_RUNNING, phase=TURN_PHASE_PROMPTED),
    Moment(
        "before a question",
        QUESTION,
        "runner.question.before_open",
        state=TURN_STATE_RUNNING,
        phase=TURN_PHASE_PROMPTED,
        policy=APPROVAL_POLICY_ASK,
    ),
    Moment(
        "awaiting input",
        QUESTION,
        state=TURN_STATE_AWAITING_INPUT,
        phase=TURN_PHASE_PROMPTED,
        policy=APPROVAL_POLICY_ASK,
    ),
    Moment("finishing", "say done", "runner.finish_turn.before", state=TURN_STATE_RUNNING),
    Moment(
        "just finished",
        "say done",
        "runner.finish_turn.after",
        state=TURN_STATE_COMPLETED,
    ),
    Moment(
        "runner dead",
        TOOL,
        "runner.tool.recorded",
        state=TURN_STATE_RUNNING,
        phase=TURN_PHASE_PROMPTED,
        is_killed=True,
    ),
    Moment("runner hung", "say done", "runner.finish_turn.before", state=TURN_STATE_RUNNING, is_hung=True),
)
