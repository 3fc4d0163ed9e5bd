"""What policies answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from moorage.common.v1.turn_pb2 import ApprovalPolicy

from services.runner.approvals import choose

ALLOW, DENY, ASK = (
    ApprovalPolicy.APPROVAL_POLICY_ALLOW,
    ApprovalPolicy.APPROVAL_POLICY_DENY,
    ApprovalPolicy.APPROVAL_POLICY_ASK,
)


@dataclass(frozen=True)
class Offer:
    """An option as the agent offers it."""

    option_id: str
    kind: str


ALL = [
    Offer("always", "allow_always"),
    Offer("once", "allow_once"),
    Offer("again", "allow_once"),
    Offer("never", "reject_always"),
    Offer("no", "reject_once"),
]


@pytest.mark.parametrize(
    ("policy", "options", "chosen"),
    [
        (ALLOW, ALL, "once"),
        (DENY, ALL, "no"),
        (ASK, ALL, None),
        (ALLOW, [Offer("always", "allow_always"), Offer("no", "reject_once")], "always"),
        (DENY, [Offer("once", "allow_once"), Offer("never", "reject_always")], "never"),
        (ALLOW, [Offer("no", "reject_once")], None),
        (DENY, [Offer("once", "allow_once")], None),
        (ALLOW, [Offer("odd", "something_new")], None),
        (DENY, [], None),
    ],
)
def test_a_policy_picks_the_narrowest_answer_of_its_kind(
    policy: ApprovalPolicy.ValueType, options: list[Offer], chosen: str | None
) -> None:
    assert choose(policy, options) == chosen
