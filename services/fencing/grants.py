"""Grants as bytes: the one place that builds, signs and reads their payload (F3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.common.v1 import grant_pb2


@dataclass(frozen=True, slots=True)
class GrantClaims:
    """What a grant says; `expire_time` is of the owner database's clock."""

    resource: str
    holder: str
    token: int
    expire_time: datetime
    role: str


class GrantSigner:
    """Signs claims with one key."""

    def __init__(self, kid: str, key: Ed25519PrivateKey) -> None:
        """`kid` is the name under which verifiers find the public key."""
        self.kid = kid
        self.public_key = key.public_key().public_bytes_raw()
        self._key = key

    def sign(self, claims: GrantClaims) -> grant_pb2.Grant:
        """The grant whose signature covers exactly the bytes of its payload."""
        payload = encode(claims)
        return grant_pb2.Grant(kid=self.kid, payload=payload, signature=self._key.sign(payload))


@lru_cache(maxsize=64)
def timestamp(moment: datetime) -> Timestamp:
    """Not to be changed: many grants and results are of the same moment, and share it."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def encode(claims: GrantClaims) -> bytes:
    """The payload; made once per grant and never again from what was read."""
    message = grant_pb2.GrantClaims(
        resource=claims.resource, holder=claims.holder, token=claims.token, role=claims.role
    )
    message.expire_time.CopyFrom(timestamp(claims.expire_time))
    return message.SerializeToString(deterministic=True)


def decode(payload: bytes) -> GrantClaims:
    """What a payload says; ValueError when it is not a whole GrantClaims."""
    try:
        message = grant_pb2.GrantClaims.FromString(payload)
    except DecodeError as error:
        raise ValueError("the payload is not a GrantClaims") from error
    if not (message.resource and message.holder and message.token > 0 and message.HasField("expire_time")):
        raise ValueError("the payload lacks claims")
    expire_time = message.expire_time.ToDatetime(tzinfo=UTC)
    return GrantClaims(message.resource, message.holder, message.token, expire_time, message.role)
