"""An agent's request to have values filled in, or a page opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from services.runner.acp.errors import INVALID_PARAMS
from services.runner.acp.lines import Message
from services.runner.acp.rpc import RequestError

ACCEPT: Final = "accept"
DECLINE: Final = "decline"
# What the agent is told; None when the question was withdrawn.
ElicitationOutcome = Message | None


@dataclass(frozen=True, slots=True)
class Elicitation:
    """`schema` is JSON Schema of what is to be filled in, or `url` is a page to be opened."""

    session_id: str
    tool_call_id: str
    message: str
    schema: str
    url: str
    raw: Message


def elicitation_request(params: Message) -> Elicitation:
    """The request, else RequestError: of a mode that is not offered, of no session, or malformed."""
    mode = params.get("mode")
    if mode not in ("form", "url"):
        raise RequestError(INVALID_PARAMS, f"mode: {mode!r} is neither form nor url")
    schema = params.get("requestedSchema")
    if mode == "form" and not isinstance(schema, dict):
        raise RequestError(INVALID_PARAMS, "requestedSchema: must be an object")
    return Elicitation(
        # What belongs to no session nobody can be asked about.
        session_id=_text(params, "sessionId"),
        tool_call_id=_text(params, "toolCallId", required=False),
        message=_text(params, "message"),
        schema=json.dumps(schema) if mode == "form" else "",
        url=_text(params, "url") if mode == "url" else "",
        raw=params,
    )


def elicited(option_id: str | None, values: str) -> ElicitationOutcome:
    """What is told when a question was answered with this option."""
    if option_id is None:
        return None
    if option_id != ACCEPT:
        return {"action": DECLINE}
    return {"action": ACCEPT, "content": json.loads(values)} if values else {"action": ACCEPT}


def told(outcome: ElicitationOutcome) -> Message:
    """An outcome in the protocol's words."""
    return {"action": "cancel"} if outcome is None else outcome


def _text(params: dict[str, Any], name: str, *, required: bool = True) -> str:
    value = params.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or not value:
        raise RequestError(INVALID_PARAMS, f"{name}: must be a text")
    return value
