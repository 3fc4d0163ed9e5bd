"""Checks what a holder shows with a write (F3, F4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from cryptography.exceptions import InvalidSignature
from moorage.common.v1.grant_pb2 import Grant

from services.common.clock import Clock
from services.fencing.errors import GrantInvalid, LeaseExpired, MissingOwner, WrongResource
from services.fencing.grants import GrantClaims, decode
from services.fencing.keys import KeySource

_CACHE_SIZE: Final = 10_000

Shown = tuple[str, bytes, bytes]


class GrantVerifier:
    """Verifies grants and remembers those that were good until they expire.

    The token is not compared here: that belongs into the transaction of the write.
    """

    def __init__(
        self,
        keys: KeySource,
        clock: Clock,
        *,
        max_clock_skew: float = 1.0,
        cache_size: int = _CACHE_SIZE,
    ) -> None:
        """`max_clock_skew`: seconds by which our clock may be ahead of the owner database's."""
        self._keys = keys
        self._clock = clock
        self._skew = timedelta(seconds=max_clock_skew)
        self._cache_size = cache_size
        self._verified: dict[Shown, GrantClaims] = {}

    async def verify(self, grant: Grant | None, resource: str) -> GrantClaims:
        """What the grant says, if it is good, for this resource, and not expired.

        Raises MissingOwner, GrantInvalid, WrongResource, LeaseExpired, or KeysUnavailable.
        A grant that was verified before costs a look-up and does not suspend the caller.
        """
        if grant is None or not (grant.kid or grant.payload or grant.signature):
            raise MissingOwner(resource=resource)
        shown = (grant.kid, grant.payload, grant.signature)
        claims = self._verified.get(shown) or await self._check(shown, resource)
        if claims.resource != resource:
            raise WrongResource(resource=resource, granted=claims.resource)
        self._check_time(shown, claims)
        return claims

    async def _check(self, shown: Shown, resource: str) -> GrantClaims:
        kid, payload, signature = shown
        key = await self._keys.get(kid)
        if key is None:
            raise GrantInvalid(resource=resource, cause="it is signed with an unknown key")
        try:
            key.verify(signature, payload)
            claims = decode(payload)
        except InvalidSignature:
            raise GrantInvalid(resource=resource, cause="its signature is wrong") from None
        except ValueError as error:
            raise GrantInvalid(resource=resource, cause=str(error)) from error
        self._remember(shown, claims)
        return claims

    def _check_time(self, shown: Shown, claims: GrantClaims) -> None:
        if self._clock.now() < claims.expire_time + self._skew:
            return
        self._verified.pop(shown, None)
        raise LeaseExpired(
            resource=claims.resource,
            holder=claims.holder,
            token=claims.token,
            expire_time=claims.expire_time,
        )

    def _remember(self, shown: Shown, claims: GrantClaims) -> None:
        while len(self._verified) >= self._cache_size:
            del self._verified[next(iter(self._verified))]
        self._verified[shown] = claims
