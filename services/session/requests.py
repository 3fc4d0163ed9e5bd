"""Request ids (S2): what makes a repeated call have one effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import AlreadyExists

_REQUEST_ID: Final = "request_id"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Names one mutating call; with an empty `request_id` the call is not remembered."""

    project: str
    scope: str
    rpc: str
    request_id: str
    fingerprint: bytes


class RequestIdReused(AlreadyExists):
    """request_id {request_id} was used for another {rpc} before"""

    reason = ErrorReason.ERROR_REASON_REQUEST_ID_REUSED


def key_of(
    rpc: str, project: str, scope: str, request_id: str, request: Message, *, ignoring: str | None = None
) -> RequestKey:
    """The key of a call; `ignoring` names a field that is about the answer, not about the effect."""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField(_REQUEST_ID)
    if ignoring is not None:
        content.ClearField(ignoring)
    fingerprint = hashlib.sha256(content.SerializeToString(deterministic=True)).digest()
    return RequestKey(project, scope, rpc, request_id, fingerprint)


def check_same(key: RequestKey, fingerprint: bytes) -> None:
    """RequestIdReused unless the stored call had the same content."""
    if fingerprint != key.fingerprint:
        raise RequestIdReused(request_id=key.request_id, rpc=key.rpc)
