"""Leases: what is asked for, what is stored, what can be refused."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from services.common.validation import check_range, check_request_id, check_size, check_text

MAX_RESOURCE: Final = 400
MAX_RENEWALS: Final = 10_000
ROLES: Final = ("runner", "service", "operator")
_TAKER_ROLES: Final = ("service", "operator")
_MAX_LABELS: Final = 32
_MAX_LABEL_KEY: Final = 63
_MAX_LABEL_VALUE: Final = 1024
_MAX_ENDPOINT: Final = 255
_MAX_PORT: Final = 65_535

_RESOURCE: Final = re.compile(r"[A-Za-z0-9_/-]{1,400}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_/-]{0,400}")
_HOLDER: Final = re.compile(r"[A-Za-z0-9_-]{1,128}/[A-Za-z0-9_-]{1,128}")
_ENDPOINT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


class LeaseNotFound(NotFound):
    """no lease was ever granted for {resource}"""

    reason = ErrorReason.ERROR_REASON_LEASE_NOT_FOUND


class LeaseHeld(FailedPrecondition):
    """lease {resource} is held by {holder} until {expire_time}"""

    reason = ErrorReason.ERROR_REASON_LEASE_HELD


class LeaseStale(Aborted):
    """{holder} does not hold lease {resource} with token {token}"""

    reason = ErrorReason.ERROR_REASON_LEASE_STALE


class LeaseEnded(Aborted):
    """the lease of {resource} that request {request_id} got has ended"""

    reason = ErrorReason.ERROR_REASON_LEASE_STALE


class TakeoverStale(Aborted):
    """lease {resource} does not stand at token {token}, which was to be replaced"""

    reason = ErrorReason.ERROR_REASON_LEASE_STALE


class RequestIdReused(AlreadyExists):
    """{holder} used request id {request_id} before with other content"""

    reason = ErrorReason.ERROR_REASON_REQUEST_ID_REUSED


@dataclass(frozen=True, slots=True)
class Acquisition:
    """What AcquireLease asks for. `takeover_token` names the token to replace, 0 none."""

    resource: str
    holder: str
    ttl: timedelta
    endpoint: str
    labels: Mapping[str, str]
    request_id: str
    takeover_token: int = 0

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal content; what a request id must keep."""
        content = [self.resource, self.ttl.total_seconds(), self.endpoint, sorted(self.labels.items())]
        if self.takeover_token:
            content.append(self.takeover_token)
        return hashlib.sha256(json.dumps(content).encode()).digest()


@dataclass(frozen=True, slots=True)
class Release:
    """What ReleaseLease asks for."""

    resource: str
    holder: str
    token: int

    def stale(self) -> LeaseStale:
        """The refusal: another token stands, or another holder."""
        return LeaseStale(resource=self.resource, holder=self.holder, token=self.token)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it stands; times are of the database's clock, where `live` was judged too.

    `replaced_expire_time`: until when a holder that was replaced may believe in its grant.
    """

    resource: str
    holder: str
    token: int
    acquire_time: datetime
    expire_time: datetime
    ttl: timedelta
    endpoint: str
    labels: Mapping[str, str]
    live: bool
    replaced_expire_time: datetime | None

    @property
    def role(self) -> str:
        """What its holder is, one of ROLES."""
        return self.labels["role"]


@dataclass(frozen=True, slots=True)
class Renewal:
    """One item of RenewLeases."""

    resource: str
    token: int


class RenewalState(enum.Enum):
    """What became of a renewal."""

    RENEWED = "RENEWED"
    NOT_FOUND = "NOT_FOUND"
    EXPIRED = "EXPIRED"
    STALE = "STALE"


@dataclass(frozen=True, slots=True)
class RenewalOutcome:
    """The result of one item; role and end are None unless RENEWED."""

    resource: str
    token: int
    state: RenewalState
    role: str | None
    expire_time: datetime | None


@dataclass(frozen=True, slots=True)
class TtlLimits:
    """Lengths that a lease may have, in seconds."""

    default: float
    minimum: float
    maximum: float

    def check(self, field: str, seconds: float | None) -> timedelta:
        """The length asked for, or the default one."""
        if seconds is None:
            seconds = self.default
        check_range(field, seconds, self.minimum, self.maximum)
        return timedelta(seconds=seconds)


def check_resource(field: str, value: str) -> str:
    """A name that can be leased."""
    if not _RESOURCE.fullmatch(value):
        raise InvalidArgument.of(field, f"must be 1 to {MAX_RESOURCE} of A-Z a-z 0-9 _ - /")
    return value


def check_prefix(field: str, value: str) -> str:
    """The beginning of such names; may be empty."""
    if not _PREFIX.fullmatch(value):
        raise InvalidArgument.of(field, f"must be at most {MAX_RESOURCE} of A-Z a-z 0-9 _ - /")
    return value


def check_holder(field: str, value: str) -> str:
    """A process start."""
    if not _HOLDER.fullmatch(value):
        raise InvalidArgument.of(field, "must be <name>/<random per start>, each 1 to 128 of A-Z a-z 0-9 _ -")
    return value


def check_token(field: str, value: int) -> int:
    """A token that may have been granted."""
    if value <= 0:
        raise InvalidArgument.of(field, "must be positive")
    return value


def check_endpoint(field: str, value: str) -> str:
    """Where a holder is reached, or empty."""
    check_size(field, value, _MAX_ENDPOINT)
    match = _ENDPOINT.fullmatch(value)
    if value and not (match and 0 < int(match[1]) <= _MAX_PORT):
        raise InvalidArgument.of(field, "must be host:port or empty")
    return value


def check_labels(field: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    """A holder's labels; `role` is required."""
    check_size(field, labels, _MAX_LABELS, "labels")
    for key, value in labels.items():
        check_size(field, key, _MAX_LABEL_KEY)
        check_text(field, key)
        check_size(f"{field}[{key}]", value, _MAX_LABEL_VALUE)
        check_text(f"{field}[{key}]", value)
    if labels.get("role") not in ROLES:
        raise InvalidArgument.of(f"{field}[role]", f"must be one of {', '.join(ROLES)}")
    return dict(labels)


def check_takeover(field: str, token: int, role: str) -> int:
    """The token to replace, or 0; a runner takes over nothing."""
    if token < 0:
        raise InvalidArgument.of(field, "must not be negative")
    if token and role not in _TAKER_ROLES:
        raise InvalidArgument.of(field, f"is for the roles {' and '.join(_TAKER_ROLES)}")
    return token


def check_renewals(field: str, renewals: Sequence[Renewal]) -> Sequence[Renewal]:
    """A batch: not too many, no resource twice."""
    check_size(field, renewals, MAX_RENEWALS, "renewals")
    seen: set[str] = set()
    for index, renewal in enumerate(renewals):
        check_resource(f"{field}[{index}].resource", renewal.resource)
        check_token(f"{field}[{index}].token", renewal.token)
        if renewal.resource in seen:
            raise InvalidArgument.of(f"{field}[{index}].resource", "is named twice")
        seen.add(renewal.resource)
    return renewals


def check_acquisition(acquisition: Acquisition) -> Acquisition:
    """What is asked for, its ttl aside."""
    check_resource("resource", acquisition.resource)
    check_holder("holder", acquisition.holder)
    check_endpoint("endpoint", acquisition.endpoint)
    check_labels("labels", acquisition.labels)
    check_request_id(acquisition.request_id)
    check_takeover("takeover_token", acquisition.takeover_token, acquisition.labels["role"])
    return acquisition
