"""Leases: renewals, acquisitions, checks of grants, against Ed25519 alone and against etcd on the same disk.

Owner, its PostgreSQL (fsync on), etcd and the callers share this machine. All calls of both services
come from one Python process; etcd's renewals go over streams, since it has no batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from moorage.common.v1.grant_pb2 import Grant

from bench.harness.bare import BareCall, bare_call
from bench.harness.etcd import EtcdLeases, etcd
from bench.harness.owner import Holder, owner
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.sampling import interleaved, rate, rate_of
from services.common.clock import SystemClock
from services.fencing.grants import GrantClaims, GrantSigner
from services.fencing.verifier import GrantVerifier

_LEASES: Final = 2000
_BATCH: Final = 1000
_BATCHES_AT_ONCE: Final = 2
_CALLERS: Final = 32
_STREAMS: Final = 8
_STREAM_LEASES: Final = 100
# About what a stream does in a second, so that a value takes the time that was asked for.
_STREAM_RATE: Final = 2000
_GRANTS: Final = 2000
_RESOURCE: Final = "projects/bench/sessions/one"

Measure = Callable[[], Awaitable[float]]


async def measure(effort: Effort) -> Report:
    """Renewals, pairs and checks."""
    report = Report()
    with scratch() as directory:
        async with owner(directory) as holder, etcd(directory) as leases, bare_call() as call:
            if leases is None:
                report.notes.append("no etcd here, so nothing is compared with it; tools/etcd.sh gets one")
            await _measure_renewals(report, effort, holder, leases)
            await _measure_pairs(report, effort, holder, leases, call)
    await _measure_checks(report, effort)
    return report


async def _measure_renewals(
    report: Report, effort: Effort, holder: Holder, leases: EtcdLeases | None
) -> None:
    batches = await holder.acquire_batches(_LEASES, _BATCH)
    workers = [partial(holder.renew, batches[number % len(batches)]) for number in range(_BATCHES_AT_ONCE)]
    contestants: dict[str, Measure] = {
        "signatures": partial(_signatures, effort.seconds),
        "renewals": partial(rate, effort.seconds, *workers),
    }
    if leases is not None:
        contestants["etcd"] = (await _Streams.open(leases, effort.seconds)).rate
    values = await interleaved(effort.rounds, **contestants)
    against = "bare Ed25519 signatures of one core"
    report.add("renewals_per_s", "1/s", values["renewals"], values["signatures"], against=against)
    if "etcd" in values:
        against = f"etcd keep-alives on {_STREAMS} streams"
        report.add("renewals_per_s_by_etcd", "1/s", values["renewals"], values["etcd"], against=against)


async def _measure_pairs(
    report: Report, effort: Effort, holder: Holder, leases: EtcdLeases | None, call: BareCall
) -> None:
    ours = [partial(holder.acquire_and_release, f"pairs/{number}") for number in range(_CALLERS)]
    contestants: dict[str, Measure] = {
        "pairs": partial(rate, effort.seconds, *ours),
        "bare": partial(rate, effort.seconds, *[partial(_twice, call)] * _CALLERS),
    }
    if leases is not None:
        theirs = [partial(_grant_and_revoke, leases)] * _CALLERS
        contestants["etcd"] = partial(rate, effort.seconds, *theirs)
    values = await interleaved(effort.rounds, **contestants)
    against = f"etcd grant and revoke, {_CALLERS} callers" if leases else ""
    report.add("acquire_release_pairs_per_s", "1/s", values["pairs"], values.get("etcd", ()), against=against)
    against = "pairs of calls to a Python server that does nothing"
    report.add("pairs_per_s_by_bare_calls", "1/s", values["pairs"], values["bare"], against=against)


async def _measure_checks(report: Report, effort: Effort) -> None:
    """Many grants, so that none is in a processor's cache by chance."""
    checks = _Checks.make()
    values = await interleaved(
        effort.rounds, bare=checks.bare, uncached=checks.uncached, cached=checks.cached
    )
    against = "bare Ed25519 verification"
    report.add("grant_check_uncached", "us", values["uncached"], values["bare"], against=against)
    report.add("grant_check_cached", "us", values["cached"], values["bare"], against=against)


async def _signatures(seconds: float) -> float:
    key, payload = Ed25519PrivateKey.generate(), bytes(100)
    return await rate_of(seconds, lambda: key.sign(payload))


async def _twice(call: BareCall) -> int:
    await call()
    await call()
    return 1


async def _grant_and_revoke(leases: EtcdLeases) -> int:
    await leases.revoke(await leases.grant(30))
    return 1


@dataclass(frozen=True, slots=True)
class _Streams:
    """Leases of etcd, kept alive by some streams."""

    leases: EtcdLeases
    ids: list[list[int]]
    times: int

    @classmethod
    async def open(cls, leases: EtcdLeases, seconds: float) -> _Streams:
        ids = [[await leases.grant(3600) for _ in range(_STREAM_LEASES)] for _ in range(_STREAMS)]
        return cls(leases, ids, max(1, round(seconds * _STREAM_RATE / _STREAM_LEASES)))

    async def rate(self) -> float:
        began = time.perf_counter()
        renewed = await asyncio.gather(*(self.leases.keep_alive(ids, self.times) for ids in self.ids))
        return sum(renewed) / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Checks:
    """Grants, and microseconds for each check of one."""

    key: Ed25519PublicKey
    grants: list[Grant]
    warm: GrantVerifier

    @classmethod
    def make(cls) -> _Checks:
        key = Ed25519PrivateKey.generate()
        signer, end = GrantSigner("key_1", key), datetime.now(UTC) + timedelta(hours=1)
        grants = [
            signer.sign(GrantClaims(_RESOURCE, f"runner-{number}/1", number + 1, end, "runner"))
            for number in range(_GRANTS)
        ]
        return cls(key.public_key(), grants, GrantVerifier(_OneKey(key.public_key()), SystemClock()))

    async def bare(self) -> float:
        async with _timed() as took:
            for grant in self.grants:
                self.key.verify(grant.signature, grant.payload)
        return took()

    async def uncached(self) -> float:
        verifier = GrantVerifier(_OneKey(self.key), SystemClock())
        async with _timed() as took:
            for grant in self.grants:
                await verifier.verify(grant, _RESOURCE)
        return took()

    async def cached(self) -> float:
        for grant in self.grants:
            await self.warm.verify(grant, _RESOURCE)
        async with _timed() as took:
            for grant in self.grants:
                await self.warm.verify(grant, _RESOURCE)
        return took()


@dataclass(frozen=True, slots=True)
class _OneKey:
    key: Ed25519PublicKey

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        return self.key


@contextlib.asynccontextmanager
async def _timed() -> AsyncIterator[Callable[[], float]]:
    """Microseconds for each grant, once the block has ended."""
    began, ended = time.perf_counter(), 0.0
    yield lambda: (ended - began) / _GRANTS * 1e6
    ended = time.perf_counter()
