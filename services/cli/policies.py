"""What happens to an agent's questions, as an option."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from moorage.common.v1 import turn_pb2


class Approval(StrEnum):
    """Policies that a session can have."""

    ask = "ask"
    allow = "allow"
    deny = "deny"

    @property
    def message(self) -> turn_pb2.ApprovalPolicy.ValueType:
        """The contract's value."""
        return turn_pb2.ApprovalPolicy.Value(f"APPROVAL_POLICY_{self.value.upper()}")


ApprovalOption = Annotated[
    Approval, typer.Option(help="For a new session: what happens to the agent's questions.")
]
