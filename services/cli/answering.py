"""How people answer a question elsewhere than where the turn is watched."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.forms import ACCEPT, DECLINE, properties_of

APPROVING = ("allow_once", "allow_always")
DENYING = ("reject_once", "reject_always")

Asked = session_pb2.Interaction | record_pb2.InteractionOpened


class AwaitsAnswer(CommandFailed):
    """The agent asks, and nobody can be asked here."""

    exit = Exit.AWAITS_ANSWER

    def __init__(self, session_id: str, seq: int, asked: Asked) -> None:
        """`seq` is the record that asks: what comes after it is not seen here."""
        how = how_to_answer(session_id, asked)
        follow = f"`moorage watch {session_id} --after {seq}` shows how it goes on"
        super().__init__(f"the agent asks: {asked.title}", hint=f"{how}; {follow}")


def how_to_answer(session_id: str, asked: Asked, *, named: bool = False) -> str:
    """The commands; with `named` they name the question, as is needed when several wait."""
    question = f" --question {asked.interaction_id}" if named else ""
    where = f"{session_id}{question}"
    if asked.kind == record_pb2.INTERACTION_KIND_FORM:
        return (
            f"`moorage answer {ACCEPT} {where}{_fields(asked.schema)}` or `moorage answer {DECLINE} {where}`"
        )
    kinds = {option.kind for option in asked.options}
    if kinds & {*APPROVING} and kinds & {*DENYING}:
        return f"`moorage answer approve {where}` or `moorage answer deny {where}`"
    return " or ".join(
        f"`moorage answer {shlex.quote(option.option_id)} {where}`" for option in asked.options
    )


def offered(options: Iterable[record_pb2.InteractionOption]) -> str:
    """What may be answered."""
    return ", ".join(f"{option.option_id} ({option.name})" for option in options)


def _fields(schema: str) -> str:
    return "".join(f" --value {each.name}=…" for each in properties_of(schema))
