"""Errors of holding and showing a lease. The session and the workspace service raise them too."""

from __future__ import annotations

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Aborted, FailedPrecondition, PermissionDenied, Unavailable


class MissingOwner(FailedPrecondition):
    """a write to {resource} needs a grant and showed none"""

    reason = ErrorReason.ERROR_REASON_MISSING_OWNER


class GrantInvalid(PermissionDenied):
    """the grant shown for {resource} is invalid: {cause}"""

    reason = ErrorReason.ERROR_REASON_GRANT_INVALID


class WrongResource(PermissionDenied):
    """the grant is for {granted}, not for {resource}"""

    reason = ErrorReason.ERROR_REASON_WRONG_RESOURCE


class LeaseExpired(FailedPrecondition):
    """the grant of {holder} for {resource} with token {token} expired at {expire_time}"""

    reason = ErrorReason.ERROR_REASON_LEASE_EXPIRED


class StaleOwner(Aborted):
    """token {token} for {resource} is stale: {highest} has been seen"""

    reason = ErrorReason.ERROR_REASON_STALE_OWNER


class LeaseHeld(FailedPrecondition):
    """lease {resource} is held by {holder} until {expire_time}"""

    reason = ErrorReason.ERROR_REASON_LEASE_HELD


class LeaseStale(Aborted):
    """lease {resource} has gone on from token {token}"""

    reason = ErrorReason.ERROR_REASON_LEASE_STALE


class KeysUnavailable(Unavailable):
    """the keys that verify grants cannot be fetched from owner: {cause}"""
