"""An agent's permission request as a question that can be put to users."""

from __future__ import annotations

from typing import Final

from moorage.common.v1.record_pb2 import InteractionKind, InteractionOpened, InteractionOption

from services.runner.acp.errors import INVALID_PARAMS
from services.runner.acp.messages import PermissionRequest
from services.runner.acp.rpc import RequestError
from services.runner.texts import storable

_MOST_OPTIONS: Final = 64
_LONGEST_ID: Final = 1024
# So that a question with as many options as possible still fits.
_LONGEST_NAME: Final = 1024


def to_question(request: PermissionRequest, interaction_id: str, title: str) -> InteractionOpened:
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
        options=[
            InteractionOption(
                option_id=option.option_id, name=storable(option.name, _LONGEST_NAME), kind=option.kind
            )
            for option in request.options
        ],
    )
