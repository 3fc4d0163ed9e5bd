"""Errors on the wire: kinds to gRPC codes, and google.rpc.Status with its details, both ways."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.common import errors
from services.common.errors import FieldViolation, MoorageError

DOMAIN: Final = "moorage"
DETAILS_KEY: Final = "grpc-status-details-bin"

# Trailers share one header block, of which many peers accept 8 KiB.
_MESSAGE_BYTES: Final = 512
_VALUE_BYTES: Final = 256
_MAX_VIOLATIONS: Final = 8

CODES: Final[dict[type[MoorageError], grpc.StatusCode]] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Aborted: grpc.StatusCode.ABORTED,
    errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.Cancelled: grpc.StatusCode.CANCELLED,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.Internal: grpc.StatusCode.INTERNAL,
}
_RETRY_AFTER: Final = 1.0
_LOST: Final = "execute_batch"
_NO_ANSWER: Final = (errors.Unavailable, errors.DeadlineExceeded, errors.Cancelled)
_KINDS: Final = {code: kind for kind, code in CODES.items()}


def code_of(error: MoorageError) -> grpc.StatusCode:
    """The gRPC code of an error's kind."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def to_rpc_status(error: MoorageError) -> status_pb2.Status:
    """google.rpc.Status with ErrorInfo, RetryInfo and BadRequest, short enough for trailers."""
    message = _shorten(str(error), _MESSAGE_BYTES)
    number: int = code_of(error).value[0]
    status = status_pb2.Status(code=number, message=message)
    metadata = {key: _shorten(value, _VALUE_BYTES) for key, value in error.metadata.items()}
    if error.reason_name != errors.UNSPECIFIED:
        info = error_details_pb2.ErrorInfo(reason=error.reason_name, domain=DOMAIN, metadata=metadata)
        status.details.add().Pack(info)
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.violations:
        status.details.add().Pack(_bad_request(error.violations))
    return status


def to_status(error: MoorageError) -> grpc.Status:
    """The status that `context.abort_with_status` takes."""
    return rpc_status.to_status(to_rpc_status(error))


def from_rpc_error(error: grpc.aio.AioRpcError) -> MoorageError:
    """The error another service reported, as the kind of its code, with reason and metadata.

    What gRPC says INTERNAL of, as a message met the end of its call, is UNAVAILABLE: the service's
    own status came or was on its way, and is lost (grpc/grpc#36066).
    """
    if error.code() is grpc.StatusCode.INTERNAL and _LOST in (error.debug_error_string() or ""):
        return from_rpc_status(grpc.StatusCode.UNAVAILABLE, error.details() or "", status_pb2.Status())
    trailers = error.trailing_metadata() or ()
    raw = next((value for key, value in trailers if key == DETAILS_KEY), b"")
    status = status_pb2.Status()
    if isinstance(raw, bytes):
        status.MergeFromString(raw)
    return from_rpc_status(error.code(), error.details() or "", status)


def from_dependency(dependency: str, error: grpc.aio.AioRpcError) -> MoorageError:
    """What a service said, as it said it; of its silence the text names the service."""
    told = from_rpc_error(error)
    if isinstance(told, _NO_ANSWER) and not told.metadata:
        cause = " ".join((error.details() or error.code().name).split())
        return errors.DependencyUnavailable(dependency=dependency, cause=cause, retry_after=_RETRY_AFTER)
    return told


def from_rpc_status(code: grpc.StatusCode, message: str, status: status_pb2.Status) -> MoorageError:
    """The kind of `code` with what the details say; without details the reason is the kind's own."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    request = error_details_pb2.BadRequest()
    retry_after: float | None = None
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(request)
        if detail.Unpack(retry):
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    kind = _KINDS.get(code, errors.Internal)
    return kind.received(
        message,
        reason_name=info.reason or errors.name_of(kind.reason),
        metadata=info.metadata,
        retry_after=retry_after,
        violations=tuple(FieldViolation(v.field, v.description) for v in request.field_violations),
    )


def _bad_request(violations: tuple[FieldViolation, ...]) -> error_details_pb2.BadRequest:
    request = error_details_pb2.BadRequest()
    for violation in violations[:_MAX_VIOLATIONS]:
        request.field_violations.add(
            field=_shorten(violation.field, _VALUE_BYTES),
            description=_shorten(violation.description, _VALUE_BYTES),
        )
    return request


def _shorten(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"
