"""LeaseService: unpack, call, pack."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

import grpc
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceServicer

from services.common.failpoints import failpoint
from services.common.pages import PageToken, page_size
from services.common.validation import seconds_of
from services.fencing.grants import GrantClaims, GrantSigner, timestamp
from services.owner import leases
from services.owner.grouping import LeaseGroups
from services.owner.keys import KeyRing, StoredKey
from services.owner.leases import (
    Acquisition,
    Lease,
    Release,
    Renewal,
    RenewalOutcome,
    RenewalState,
    TtlLimits,
)
from services.owner.store.keys import KeyStore
from services.owner.store.leases import LeaseStore

Context = grpc.aio.ServicerContext[Any, Any]

# So many signatures take a few milliseconds; then other calls have their turn.
_SIGNED_AT_ONCE: Final = 100
_STATES: Final = {
    RenewalState.RENEWED: lease_pb2.RENEWAL_STATE_RENEWED,
    RenewalState.NOT_FOUND: lease_pb2.RENEWAL_STATE_NOT_FOUND,
    RenewalState.EXPIRED: lease_pb2.RENEWAL_STATE_EXPIRED,
    RenewalState.STALE: lease_pb2.RENEWAL_STATE_STALE,
}


class LeaseServicer(LeaseServiceServicer):
    """The contract's side of the owner service. Grants are signed after the commit."""

    def __init__(
        self, store: LeaseStore, groups: LeaseGroups, keys: KeyStore, ring: KeyRing, limits: TtlLimits
    ) -> None:
        """`groups` changes leases, but for renewals, `ring` signs, `keys` tells which keys verify."""
        self._store = store
        self._groups = groups
        self._keys = keys
        self._ring = ring
        self._limits = limits

    async def AcquireLease(
        self, request: lease_pb2.AcquireLeaseRequest, context: Context
    ) -> lease_pb2.AcquireLeaseResponse:
        """See the contract."""
        acquisition = self._acquisition(request)
        # Without a key nothing may be granted.
        signer = self._ring.signer()
        lease = await self._groups.acquire(acquisition)
        await failpoint("owner.acquire_lease.after_commit")
        response = lease_pb2.AcquireLeaseResponse(lease=_lease(lease), grant=signer.sign(_claims(lease)))
        if lease.replaced_expire_time is not None:
            response.replaced_expire_time.CopyFrom(timestamp(lease.replaced_expire_time))
        return response

    async def RenewLeases(
        self, request: lease_pb2.RenewLeasesRequest, context: Context
    ) -> lease_pb2.RenewLeasesResponse:
        """See the contract."""
        leases.check_holder("holder", request.holder)
        asked = [Renewal(item.resource, item.token) for item in request.renewals]
        leases.check_renewals("renewals", asked)
        signer = self._ring.signer()
        outcomes = await self._store.renew(request.holder, asked)
        response = lease_pb2.RenewLeasesResponse()
        for start in range(0, len(outcomes), _SIGNED_AT_ONCE):
            chunk = outcomes[start : start + _SIGNED_AT_ONCE]
            response.results.extend(_results(signer, request.holder, chunk))
            await asyncio.sleep(0)
        return response

    async def ReleaseLease(
        self, request: lease_pb2.ReleaseLeaseRequest, context: Context
    ) -> lease_pb2.ReleaseLeaseResponse:
        """See the contract."""
        release = Release(
            leases.check_resource("resource", request.resource),
            leases.check_holder("holder", request.holder),
            leases.check_token("token", request.token),
        )
        lease = await self._groups.release(release)
        return lease_pb2.ReleaseLeaseResponse(lease=_lease(lease))

    async def GetLease(
        self, request: lease_pb2.GetLeaseRequest, context: Context
    ) -> lease_pb2.GetLeaseResponse:
        """See the contract."""
        lease = await self._store.get(leases.check_resource("resource", request.resource))
        return lease_pb2.GetLeaseResponse(lease=_lease(lease))

    async def ListLeases(
        self, request: lease_pb2.ListLeasesRequest, context: Context
    ) -> lease_pb2.ListLeasesResponse:
        """See the contract."""
        prefix = leases.check_prefix("prefix", request.prefix)
        size = page_size("page_size", request.page_size)
        listing = f"ListLeases {prefix} {request.live_only}"
        token = PageToken.decode(request.page_token, listing)
        after = str(token.key[0]) if token else ""
        found = await self._store.list_leases(prefix, after, live_only=request.live_only, limit=size + 1)
        response = lease_pb2.ListLeasesResponse(leases=map(_lease, found[:size]))
        if len(found) > size:
            response.next_page_token = PageToken(listing, (found[size - 1].resource,)).encode()
        return response

    async def ListGrantKeys(
        self, request: lease_pb2.ListGrantKeysRequest, context: Context
    ) -> lease_pb2.ListGrantKeysResponse:
        """See the contract. Read anew: another replica may sign with a key that is newer than ours."""
        return lease_pb2.ListGrantKeysResponse(keys=map(_key, await self._keys.keys()))

    def _acquisition(self, request: lease_pb2.AcquireLeaseRequest) -> Acquisition:
        ttl = seconds_of("ttl", request.ttl) if request.HasField("ttl") else None
        return leases.check_acquisition(
            Acquisition(
                resource=request.resource,
                holder=request.holder,
                ttl=self._limits.check("ttl", ttl),
                endpoint=request.endpoint,
                labels=dict(request.labels),
                request_id=request.request_id,
                takeover_token=request.takeover_token,
            )
        )


def _results(
    signer: GrantSigner, holder: str, outcomes: Iterable[RenewalOutcome]
) -> Iterator[lease_pb2.RenewalResult]:
    for outcome in outcomes:
        result = lease_pb2.RenewalResult(resource=outcome.resource, state=_STATES[outcome.state])
        if outcome.expire_time is not None and outcome.role is not None:
            result.expire_time.CopyFrom(timestamp(outcome.expire_time))
            claims = GrantClaims(outcome.resource, holder, outcome.token, outcome.expire_time, outcome.role)
            result.grant.CopyFrom(signer.sign(claims))
        yield result


def _claims(lease: Lease) -> GrantClaims:
    return GrantClaims(lease.resource, lease.holder, lease.token, lease.expire_time, lease.role)


def _lease(lease: Lease) -> lease_pb2.Lease:
    message = lease_pb2.Lease(
        resource=lease.resource,
        holder=lease.holder,
        token=lease.token,
        acquire_time=timestamp(lease.acquire_time),
        expire_time=timestamp(lease.expire_time),
        endpoint=lease.endpoint,
        labels=lease.labels,
        live=lease.live,
    )
    message.ttl.FromTimedelta(lease.ttl)
    if lease.replaced_expire_time is not None:
        message.replaced_expire_time.CopyFrom(timestamp(lease.replaced_expire_time))
    return message


def _key(key: StoredKey) -> lease_pb2.GrantKey:
    return lease_pb2.GrantKey(
        kid=key.kid, public_key=key.signer.public_key, create_time=timestamp(key.create_time)
    )
