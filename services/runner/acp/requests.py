"""What an agent may ask of its client besides permissions: files and terminals, by the schema."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import ValidationError

from services.common.validation import in_own_words
from services.runner.acp.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from services.runner.acp.library import CLIENT_METHODS, schema
from services.runner.acp.lines import Message
from services.runner.acp.rpc import RequestError

ClientRequest = (
    schema.ReadTextFileRequest
    | schema.WriteTextFileRequest
    | schema.CreateTerminalRequest
    | schema.TerminalOutputRequest
    | schema.WaitForTerminalExitRequest
    | schema.KillTerminalRequest
    | schema.ReleaseTerminalRequest
)

_MODELS: Final[dict[str, type[ClientRequest]]] = {
    CLIENT_METHODS["fs_read_text_file"]: schema.ReadTextFileRequest,
    CLIENT_METHODS["fs_write_text_file"]: schema.WriteTextFileRequest,
    CLIENT_METHODS["terminal_create"]: schema.CreateTerminalRequest,
    CLIENT_METHODS["terminal_output"]: schema.TerminalOutputRequest,
    CLIENT_METHODS["terminal_wait_for_exit"]: schema.WaitForTerminalExitRequest,
    CLIENT_METHODS["terminal_kill"]: schema.KillTerminalRequest,
    CLIENT_METHODS["terminal_release"]: schema.ReleaseTerminalRequest,
}

# What is not offered here the agent must not ask for.
CLIENT_CAPABILITIES: Final[Message] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
    "session": {"configOptions": {"boolean": {}}},
}


def client_request(method: str, params: Message) -> ClientRequest:
    """The request, else RequestError: unknown, or malformed and where."""
    if method not in _MODELS:
        raise RequestError(METHOD_NOT_FOUND, f"this client does not serve {method}")
    try:
        return _MODELS[method].model_validate(params)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(
            INVALID_PARAMS, f"malformed {method}: {where}: {in_own_words(first['msg'])}"
        ) from error


async def settled(answer: asyncio.Future[Message]) -> Message:
    """The answer of whoever serves; one that was cancelled there is an error for the agent."""
    try:
        await asyncio.wait({answer})
    finally:
        answer.cancel()
    if answer.cancelled():
        raise RequestError(INTERNAL_ERROR, "the turn has ended")
    return answer.result()
