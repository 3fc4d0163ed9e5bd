"""How an exception of a handler becomes the status of its call. Nothing else leaves a handler."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc

from services.common import errors
from services.common.calls import Call
from services.common.errors import MoorageError
from services.common.logs import get_logger
from services.common.status import code_of, from_rpc_error, to_status

_log: Final = get_logger(__name__)
_BY_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}


async def answered(call: Call, handle: Callable[[], Awaitable[Any]], stopping: Callable[[], bool]) -> Any:
    """Run a handler; whatever it raises is sent as a status with details."""
    try:
        response = await handle()
    except grpc.aio.AbortError:
        call.code = call.code if call.reason else _code_set(call)
        raise
    except asyncio.CancelledError as error:
        # By the peer, by its deadline, by us, or by chance inside the handler: only the first two
        # have ended the call. An unanswered one would leave its client waiting for ever.
        await _refuse(call, _cut(stopping), error)
    except Exception as error:  # noqa: BLE001 (the boundary of the process)
        await _refuse(call, _cut(stopping) if _is_over(error) else refusal_of(call, error), error)
    call.code = _code_set(call)
    return response


def _cut(stopping: Callable[[], bool]) -> MoorageError:
    return errors.ShuttingDown() if stopping() else errors.Cancelled()


def _is_over(error: Exception) -> bool:
    """Nothing can be written any more: the peer went away or the server stopped."""
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError)


def refusal_of(call: Call, error: Exception) -> MoorageError:
    """The error to tell the caller: the one raised if it was meant for it, else INTERNAL and an id."""
    told = _expected(error)
    if told is not None and not isinstance(told, errors.Internal):
        return told
    call.error_id = secrets.token_hex(8)
    _log.error("unexpected error", error_id=call.error_id, method=call.method, exc_info=error)
    return errors.Internal(error_id=call.error_id)


def _expected(error: BaseException) -> MoorageError | None:
    if isinstance(error, MoorageError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error)
    if isinstance(error, BaseExceptionGroup):
        told = [_expected(part) for part in error.exceptions]
        return told[0] if all(told) else None
    return None


async def _refuse(call: Call, refusal: MoorageError, cause: BaseException) -> NoReturn:
    call.code, call.reason = code_of(refusal), refusal.reason_name
    status = to_status(refusal)
    trailers = (*(call.context.trailing_metadata() or ()), *(status.trailing_metadata or ()))
    try:
        await call.context.abort(status.code, status.details, trailers)
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:
        # The call is over already; its handler ends as a cancelled one does.
        raise asyncio.CancelledError from cause


def _code_set(call: Call) -> grpc.StatusCode:
    # The declared type is StatusCode; the number is what comes.
    code: Any = call.context.code()
    return code if isinstance(code, grpc.StatusCode) else _BY_NUMBER.get(code, grpc.StatusCode.OK)
