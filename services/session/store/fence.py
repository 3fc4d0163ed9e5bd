"""The fence (F4): who may write to a session, decided in the transaction of the write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moorage.common.v1.grant_pb2 import Grant

from services.common.errors import MoorageError
from services.fencing.errors import StaleOwner
from services.fencing.grants import GrantClaims
from services.fencing.verifier import GrantVerifier
from services.session.journal.rules import SessionJournal, SessionKey
from services.session.sessions import Session
from services.session.turns import EndReason

_RUNNER: Final = "runner"


@dataclass(frozen=True, slots=True)
class Shown:
    """A grant as far as it could be judged before the transaction."""

    grant: Grant
    refusal: MoorageError | None


class Fence:
    """Admits the writes of holders."""

    def __init__(self, verifier: GrantVerifier) -> None:
        """The verifier's clock and allowance for skew judge expiry."""
        self._verifier = verifier

    async def look(self, grant: Grant, key: SessionKey) -> Shown:
        """Verify before any lock is held, since a new key may have to be fetched; raises nothing.

        What is wrong with it is told in the transaction, after what does not exist.
        """
        try:
            await self._verifier.verify(grant, key.resource)
        except MoorageError as refusal:
            return Shown(grant, refusal)
        return Shown(grant, None)

    async def admit(
        self, journal: SessionJournal, shown: Shown, reason: EndReason | None = None
    ) -> GrantClaims:
        """Let a holder write to the locked session: valid, of it, not expired now, not stale.

        A higher token than the stored one is taken over into the journal, and what a lower
        one began is LOST, whatever becomes of the write; `reason` says why, if not the token does.
        """
        if shown.refusal is not None:
            raise shown.refusal
        # A look-up by now; expiry is judged anew, since the lock may have been waited for.
        claims = await self._verifier.verify(shown.grant, journal.key.resource)
        if not journal.show(claims.token, reason or _loss(claims)):
            raise StaleOwner(resource=claims.resource, token=claims.token, highest=journal.token)
        return claims

    async def let_read(self, session: Session, shown: Shown) -> None:
        """Let a holder read: its grant is good now, and its token not below the stored one, which stays."""
        if shown.refusal is not None:
            raise shown.refusal
        claims = await self._verifier.verify(shown.grant, session.resource)
        if claims.token < session.token:
            raise StaleOwner(resource=claims.resource, token=claims.token, highest=session.token)


def _loss(claims: GrantClaims) -> EndReason:
    """Why a lower turn is lost: another runner took over, or the watchdog found nobody."""
    return EndReason.TAKEN_OVER if claims.role == _RUNNER else EndReason.LEASE_LOST
