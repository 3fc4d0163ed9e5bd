"""What the session's approval policy answers to an agent that asks whether it may."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from moorage.common.v1.turn_pb2 import ApprovalPolicy

# The narrowest answer first: what is allowed once is asked again the next time.
_KINDS: Final = {
    ApprovalPolicy.APPROVAL_POLICY_ALLOW: ("allow_once", "allow_always"),
    ApprovalPolicy.APPROVAL_POLICY_DENY: ("reject_once", "reject_always"),
}


class Option(Protocol):
    """An answer that the agent offers."""

    @property
    def option_id(self) -> str:
        """The agent's id."""
        ...

    @property
    def kind(self) -> str:
        """`allow_once`, `allow_always`, `reject_once` or `reject_always`."""
        ...


def choose(policy: ApprovalPolicy.ValueType, options: Iterable[Option]) -> str | None:
    """The option that the policy picks; None where it picks none of those offered."""
    offered = {option.kind: option.option_id for option in reversed(list(options))}
    return next((offered[kind] for kind in _KINDS.get(policy, ()) if kind in offered), None)
