"""Exit codes, and how a turn's end becomes one."""

from __future__ import annotations

from enum import IntEnum

from moorage.common.v1.turn_pb2 import TurnState

SIGNALLED = 128
"""Added to the number of the signal that ended a command: 130 after Ctrl-C, 143 after SIGTERM."""


class Exit(IntEnum):
    """What a command's exit code says."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    STOPPED = 3
    LOST = 4
    AWAITS_ANSWER = 5
    CUT = 6


_ENDS = {
    TurnState.TURN_STATE_COMPLETED: Exit.COMPLETED,
    TurnState.TURN_STATE_STOPPED: Exit.STOPPED,
    TurnState.TURN_STATE_FAILED: Exit.FAILED,
    TurnState.TURN_STATE_LOST: Exit.LOST,
}


def exit_of(state: TurnState.ValueType) -> Exit:
    """The exit code for a turn that ended in `state`."""
    return _ENDS[state]
