"""An agent's requests as questions that can be put to users."""

from __future__ import annotations

from typing import Final

from moorage.common.v1.record_pb2 import InteractionKind, InteractionOpened, InteractionOption

from services.runner.acp.elicitation import ACCEPT, DECLINE, Elicitation
from services.runner.acp.errors import INVALID_PARAMS
from services.runner.acp.messages import PermissionRequest
from services.runner.acp.rpc import RequestError
from services.runner.texts import storable

_MOST_OPTIONS: Final = 64
_LONGEST_ID: Final = 1024
# So that a question with as many options as possible still fits.
_LONGEST_NAME: Final = 1024


def to_question(
    request: PermissionRequest, interaction_id: str, title: str, tool_kind: str = ""
) -> InteractionOpened:
    """The question; RequestError where nobody could answer it, or not without ambiguity."""
    ids = [option.option_id for option in request.options]
    if not 0 < len(ids) <= _MOST_OPTIONS:
        raise RequestError(INVALID_PARAMS, f"options: {len(ids)} are offered, 1 to {_MOST_OPTIONS} can be")
    if len(set(ids)) < len(ids):
        raise RequestError(INVALID_PARAMS, "options: each needs an optionId of its own")
    if not all(each and storable(each, _LONGEST_ID) == each for each in ids):
        raise RequestError(INVALID_PARAMS, f"options: an optionId has 1 to {_LONGEST_ID} bytes and no U+0000")
    return InteractionOpened(
        interaction_id=interaction_id,
        kind=InteractionKind.INTERACTION_KIND_PERMISSION,
        title=storable(title),
        tool_call_id=request.tool_call.tool_call_id,
        tool_kind=storable(tool_kind, _LONGEST_NAME),
        options=[
            InteractionOption(
                option_id=option.option_id, name=storable(option.name, _LONGEST_NAME), kind=option.kind
            )
            for option in request.options
        ],
    )


def to_form(request: Elicitation, interaction_id: str) -> InteractionOpened:
    """A question for values, or whether a page was opened; `decline` is always an answer."""
    if request.url:
        kind, title = InteractionKind.INTERACTION_KIND_CHOICE, f"{request.message} {request.url}"
    else:
        kind, title = InteractionKind.INTERACTION_KIND_FORM, request.message
    return InteractionOpened(
        interaction_id=interaction_id,
        kind=kind,
        title=storable(title),
        tool_call_id=storable(request.tool_call_id, _LONGEST_ID),
        schema=request.schema,
        options=[
            InteractionOption(option_id=ACCEPT, name="Done" if request.url else "Send", kind="allow_once"),
            InteractionOption(option_id=DECLINE, name="Decline", kind="reject_once"),
        ],
    )
