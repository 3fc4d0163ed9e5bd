"""What becomes of a session's workspace: which policy is asked for, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.session import bindings
from services.session.limits import check_duration
from services.session.sessions import RetentionPolicy

_FIELD: Final = "retention"
_TTL: Final = "retention_ttl"
_LIFETIMES: Final = ("ttl", "idle_ttl")


@dataclass(frozen=True, slots=True)
class Retention:
    """What was asked for; `policy` is None where nothing was, `ttl` is set with TTL only."""

    policy: RetentionPolicy | None
    ttl: timedelta | None

    def policy_for(self, binding: bindings.Binding) -> RetentionPolicy:
        """What Moorage made for a session goes with it, unless the caller wants it kept."""
        if self.policy is not None:
            return self.policy
        if binding.origin is bindings.Origin.PROVISIONED:
            return RetentionPolicy.DELETE_ON_CLOSE
        return RetentionPolicy.MANUAL


def check_retention(request: session_pb2.CreateSessionRequest) -> Retention:
    """The retention that is asked for; InvalidArgument names the field."""
    policy = _policy(request.retention)
    if policy is RetentionPolicy.PINNED:
        _check_pinned(request)
    return Retention(policy, _ttl(policy, request))


def _policy(asked: session_pb2.RetentionPolicy.ValueType) -> RetentionPolicy | None:
    if asked == session_pb2.RETENTION_POLICY_UNSPECIFIED:
        return None
    try:
        name = session_pb2.RetentionPolicy.Name(asked)
    except ValueError:
        raise InvalidArgument.of(_FIELD, f"{int(asked)} is no retention policy") from None
    return RetentionPolicy(name.removeprefix("RETENTION_POLICY_"))


def _check_pinned(request: session_pb2.CreateSessionRequest) -> None:
    """A workspace that stays and one that goes after a while exclude each other."""
    for name in _LIFETIMES:
        if request.provision.HasField(name):
            raise InvalidArgument.of(_FIELD, f"PINNED excludes provision.{name}")


def _ttl(policy: RetentionPolicy | None, request: session_pb2.CreateSessionRequest) -> timedelta | None:
    given = request.HasField("retention_ttl")
    if policy is not RetentionPolicy.TTL:
        if given:
            raise InvalidArgument.of(_TTL, "goes with the retention TTL only")
        return None
    if not given:
        raise InvalidArgument.of(_TTL, "is required with the retention TTL")
    return _positive(request.retention_ttl)


def _positive(duration: Duration) -> timedelta:
    check_duration(_TTL, duration)
    asked: timedelta = duration.ToTimedelta()
    if not asked:
        raise InvalidArgument.of(_TTL, "must be positive")
    return asked
