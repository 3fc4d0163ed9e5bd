"""A renewed grant that cannot be verified at the moment ends nothing (F3, F6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.clock import ManualClock
from services.fencing.errors import KeysUnavailable, LeaseExpired
from services.fencing.grants import GrantClaims, GrantSigner
from services.fencing.verifier import GrantVerifier
from services.workspace.exec.execs import Execs, SessionKey
from services.workspace.exec.input import Stdin
from services.workspace.servicers.conversation import Conversation
from services.workspace.servicers.validity import Validity
from tests.workspace.bench import Bench

SESSION = SessionKey("default", "s1")


class Keys:
    """Owner's keys, of which some cannot be fetched."""

    def __init__(self, signer: Ed25519PrivateKey) -> None:
        self.known = {"known": signer.public_key()}

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        if kid not in self.known:
            raise KeysUnavailable(cause="owner is away")
        return self.known[kid]


async def frames(*grants: Grant) -> AsyncIterator[workspace_pb2.ExecRequest]:
    for grant in grants:
        yield workspace_pb2.ExecRequest(grant=grant)


async def test_a_grant_that_cannot_be_verified_now_ends_nothing(bench: Bench) -> None:
    clock, key = ManualClock(), Ed25519PrivateKey.generate()
    execs = Execs()
    which = execs.register(SESSION, "w1", 1)
    process = bench.spawn()
    execs.attach(which, process)
    claims = GrantClaims(
        "projects/default/sessions/s1", "runner/1", 1, clock.now() + timedelta(seconds=10), "runner"
    )
    later = replace(claims, expire_time=clock.now() + timedelta(seconds=20))
    validity = Validity(which, claims, clock, 1.0)
    stdin = Stdin(process.streams.stdin, terminal=False, may_write=lambda: True)
    verifier = GrantVerifier(Keys(key), clock)
    conversation = Conversation(which, process, stdin, validity, execs, verifier)

    await conversation.run(frames(GrantSigner("away", key).sign(later)))
    assert which.may_live
    await clock.advance(9.5)
    with pytest.raises(LeaseExpired):
        validity.check()
    await conversation.run(frames(GrantSigner("known", key).sign(later)))
    validity.check()
    assert which.may_live
