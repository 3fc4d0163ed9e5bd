"""Options that several commands have, and how bad values are refused."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.common.addresses import Address
from services.common.errors import MoorageError

_RESOLVED = ("dns:", "ipv4:", "ipv6:", "unix:")


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """A callback that passes a value on if `check` raises neither ValueError nor MoorageError. Empty is fine."""

    def callback(value: str) -> str:
        try:
            if value:
                check(value)
        except (ValueError, MoorageError) as error:
            raise typer.BadParameter(str(error)) from None
        return value

    return callback


def check_target(text: str) -> None:
    """HOST:PORT, or what gRPC resolves itself, such as `dns:///session:7801` or `ipv4:A:1,B:2`; ValueError."""
    if not text.startswith(_RESOLVED):
        Address.parse(text)


def labels_of(pairs: list[str] | None) -> dict[str, str]:
    """Labels from KEY=VALUE texts."""
    labels = {}
    for pair in pairs or []:
        key, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair} is not KEY=VALUE", param_hint="--label")
        labels[key] = value
    return labels


class Approval(StrEnum):
    """Policies that a session can have."""

    ask = "ask"
    allow = "allow"
    deny = "deny"

    @property
    def message(self) -> turn_pb2.ApprovalPolicy.ValueType:
        """The contract's value."""
        return turn_pb2.ApprovalPolicy.Value(f"APPROVAL_POLICY_{self.value.upper()}")


class IfBusy(StrEnum):
    """What becomes of a turn when another one is in progress."""

    reject = "reject"
    enqueue = "enqueue"
    interrupt = "interrupt"

    @property
    def message(self) -> session_pb2.IfBusy.ValueType:
        """The contract's value."""
        return session_pb2.IfBusy.Value(f"IF_BUSY_{self.value.upper()}")


IfBusyOption = Annotated[
    IfBusy,
    typer.Option(
        "--if-busy",
        help="When another turn is in progress: refuse, wait for its end, or stop it and be next.",
    ),
]

ApprovalOption = Annotated[
    Approval, typer.Option(help="For a new session: what happens to the agent's questions.")
]
ApprovalWishOption = Annotated[
    Approval | None,
    typer.Option(
        "--approval", help="For a new session: what happens to the agent's questions. Default: ask."
    ),
]
"""Where it matters whether it was given."""


class OnInterrupt(StrEnum):
    """What Ctrl-C means for the turn that is watched."""

    ask = "ask"
    stop = "stop"
    detach = "detach"


OnInterruptOption = Annotated[
    OnInterrupt,
    typer.Option(
        "--on-interrupt",
        help="What Ctrl-C does to the turn: ask (without a terminal it goes on), stop it, or let it go on.",
    ),
]

PromptFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with the prompt instead; - for standard input."),
]
