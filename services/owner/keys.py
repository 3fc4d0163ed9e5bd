"""The keys that sign grants, stored in the database (F3).

A key is made when the newest one is old, listed for a while so that verifiers know it, signs until
another one does, and is dropped when no grant of it can be in force any more. So at most two are valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.common.errors import DependencyUnavailable
from services.fencing.grants import GrantSigner


@dataclass(frozen=True, slots=True)
class KeySchedule:
    """A new key after `lifetime`; it signs after `notice`; the one before is valid for `overlap` more."""

    lifetime: timedelta
    notice: timedelta
    overlap: timedelta


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that may become one of the stored ones."""

    kid: str
    private_key: bytes = field(repr=False)

    @classmethod
    def mint(cls) -> Self:
        """A fresh Ed25519 key, named after its public half."""
        key = Ed25519PrivateKey.generate()
        digest = hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()
        return cls(f"key_{digest[:24]}", key.private_bytes_raw())


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the database, where it was judged whether its notice is over."""

    kid: str
    private_key: bytes = field(repr=False)
    create_time: datetime
    is_noticed: bool

    @property
    def signer(self) -> GrantSigner:
        """Signs with this key."""
        return GrantSigner(self.kid, Ed25519PrivateKey.from_private_bytes(self.private_key))


def signing(keys: Sequence[StoredKey]) -> StoredKey:
    """Of these, newest first, the one that signs: the newest that verifiers had the time to fetch.

    While there is none such, the oldest, which is the only one after the first start.
    """
    return next((key for key in keys if key.is_noticed), keys[-1])


class KeyRing:
    """The key that signs in this process; empty until the database was reached."""

    def __init__(self) -> None:
        """Start without a key."""
        self._signer: GrantSigner | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be signed yet."""
        return self._signer is None

    def load(self, keys: Sequence[StoredKey]) -> None:
        """Sign with the right one of these, newest first, from now on."""
        key = signing(keys)
        if self._signer is None or self._signer.kid != key.kid:
            self._signer = key.signer

    def signer(self) -> GrantSigner:
        """What signs; DependencyUnavailable while there is no key."""
        if self._signer is None:
            raise DependencyUnavailable(dependency="signing key", cause="it has not been read yet")
        return self._signer
