"""The public keys that verify grants, fetched from owner (F3)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from services.common.clock import Clock
from services.common.errors import MoorageError
from services.common.loops import forever
from services.fencing.client import LeaseClient
from services.fencing.errors import KeysUnavailable

_FETCH_TIMEOUT: Final = 5.0
_REFRESH_INTERVAL: Final = 300.0
_UNKNOWN_KEY_INTERVAL: Final = 1.0
_LONGEST_RETRY: Final = 2.0


class KeySource(Protocol):
    """Where a verifier finds public keys."""

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        """The key of this name, None when owner has none."""
        ...


class KeyCache:
    """Owner's public keys. Without any, a service is not ready: there is no unfenced mode."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock) -> None:
        """The channel leads to owner."""
        self._client = LeaseClient(channel)
        self._clock = clock
        self._keys: Mapping[str, Ed25519PublicKey] = {}
        self._fetching = asyncio.Lock()
        self._begun = 0
        self._completed = 0
        self._fetched_at = float("-inf")
        self._failure = "they have not been fetched yet"

    async def run(self) -> None:
        """Fetch until there are keys, then again every five minutes, which drops retired ones."""
        await forever("fetching grant keys", self._step, clock=self._clock, longest_delay=_LONGEST_RETRY)

    async def ready(self) -> None:
        """Raise KeysUnavailable while no grant can be verified."""
        if not self._keys:
            raise KeysUnavailable(cause=self._failure)

    async def refresh(self) -> None:
        """Fetch once; KeysUnavailable when owner gives none. The keys known before stay."""
        async with self._fetching:
            await self._fetch()

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        """The key of this name. An unknown one is looked for at owner, once for all who wait.

        KeysUnavailable when owner cannot be asked: then nobody knows whether the grant is good.
        """
        if kid in self._keys:
            return self._keys[kid]
        arrived_at = self._begun
        async with self._fetching:
            if kid not in self._keys and self._completed <= arrived_at:
                await self._clock.sleep(self._fetched_at + _UNKNOWN_KEY_INTERVAL - self._clock.boottime())
                await self._fetch()
        if kid not in self._keys and self._failure:
            raise KeysUnavailable(cause=self._failure)
        return self._keys.get(kid)

    async def _step(self) -> float:
        await self.refresh()
        return _REFRESH_INTERVAL

    async def _fetch(self) -> None:
        self._begun += 1
        self._fetched_at = self._clock.boottime()
        try:
            response = await self._client.list_keys(_FETCH_TIMEOUT)
        except MoorageError as error:
            self._fail(str(error))
            raise KeysUnavailable(cause=self._failure) from error
        if not response.keys:
            self._fail("owner has none")
            raise KeysUnavailable(cause=self._failure)
        self._completed, self._failure = self._begun, ""
        self._keys = {key.kid: Ed25519PublicKey.from_public_bytes(key.public_key) for key in response.keys}

    def _fail(self, cause: str) -> None:
        self._completed, self._failure = self._begun, cause
