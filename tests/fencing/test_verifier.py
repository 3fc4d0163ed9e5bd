"""What is shown with a write is checked in full, once (F3, F4)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from moorage.common.v1 import grant_pb2

from services.common.clock import ManualClock
from services.common.errors import MoorageError
from services.fencing.errors import GrantInvalid, KeysUnavailable, LeaseExpired, MissingOwner, WrongResource
from services.fencing.grants import GrantClaims, GrantSigner, decode, encode
from services.fencing.verifier import GrantVerifier
from tests.fencing.scripted import START

SESSION = "projects/p/sessions/s"
CLAIMS = GrantClaims(SESSION, "runner/1", 7, START + timedelta(seconds=15), "runner")


class Keys:
    """The keys of this test; counts how often it is asked."""

    def __init__(self, *signers: GrantSigner) -> None:
        self.signers = signers
        self.asked = 0
        self.failure: MoorageError | None = None

    async def get(self, kid: str) -> Ed25519PublicKey | None:
        self.asked += 1
        if self.failure:
            raise self.failure
        found = [signer.public_key for signer in self.signers if signer.kid == kid]
        return Ed25519PublicKey.from_public_bytes(found[0]) if found else None


@pytest.fixture
def signer() -> GrantSigner:
    return GrantSigner("key_1", Ed25519PrivateKey.generate())


@pytest.fixture
def keys(signer: GrantSigner) -> Keys:
    return Keys(signer)


@pytest.fixture
def verifier(keys: Keys, clock: ManualClock) -> GrantVerifier:
    return GrantVerifier(keys, clock)


async def test_a_good_grant_says_what_was_signed(signer: GrantSigner, verifier: GrantVerifier) -> None:
    assert await verifier.verify(signer.sign(CLAIMS), SESSION) == CLAIMS


@pytest.mark.parametrize("grant", [None, grant_pb2.Grant()])
async def test_no_grant(verifier: GrantVerifier, grant: grant_pb2.Grant | None) -> None:
    with pytest.raises(MissingOwner) as caught:
        await verifier.verify(grant, SESSION)
    assert (caught.value.reason_name, caught.value.metadata) == ("MISSING_OWNER", {"resource": SESSION})


async def test_an_unknown_key(verifier: GrantVerifier) -> None:
    other = GrantSigner("key_2", Ed25519PrivateKey.generate())
    await _assert_invalid(verifier, other.sign(CLAIMS), "unknown key")


async def test_another_key_under_a_known_name(verifier: GrantVerifier) -> None:
    forger = GrantSigner("key_1", Ed25519PrivateKey.generate())
    await _assert_invalid(verifier, forger.sign(CLAIMS), "signature")


async def test_a_changed_payload(signer: GrantSigner, verifier: GrantVerifier) -> None:
    grant = signer.sign(CLAIMS)
    await verifier.verify(grant, SESSION)
    grant.payload = encode(GrantClaims(SESSION, "runner/1", 8, CLAIMS.expire_time, "runner"))
    await _assert_invalid(verifier, grant, "signature")


@pytest.mark.parametrize("signature", [b"", b"\0" * 63, b"\0" * 64, b"\0" * 65])
async def test_a_signature_that_is_none(
    signer: GrantSigner, verifier: GrantVerifier, signature: bytes
) -> None:
    grant = signer.sign(CLAIMS)
    await verifier.verify(grant, SESSION)
    grant.signature = signature
    await _assert_invalid(verifier, grant, "signature")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff\xff",
        grant_pb2.GrantClaims(resource=SESSION, holder="runner/1", token=7).SerializeToString(),
        encode(GrantClaims("", "runner/1", 7, START, "runner")),
        encode(GrantClaims(SESSION, "", 7, START, "runner")),
        encode(GrantClaims(SESSION, "runner/1", 0, START, "runner")),
        encode(GrantClaims(SESSION, "runner/1", -1, START, "runner")),
    ],
)
async def test_a_signed_payload_that_lacks_claims(keys: Keys, clock: ManualClock, payload: bytes) -> None:
    key = Ed25519PrivateKey.generate()
    keys.signers = (GrantSigner("key_1", key),)
    grant = grant_pb2.Grant(kid="key_1", payload=payload, signature=key.sign(payload))
    await _assert_invalid(GrantVerifier(keys, clock), grant, "payload")


async def test_claims_of_a_later_build_are_passed_over(clock: ManualClock) -> None:
    """The signature covers bytes: nobody serialises the claims anew."""
    key = Ed25519PrivateKey.generate()
    payload = encode(CLAIMS) + b"\xa2\x06\x03new"
    grant = grant_pb2.Grant(kid="key_1", payload=payload, signature=key.sign(payload))
    verifier = GrantVerifier(Keys(GrantSigner("key_1", key)), clock)
    assert await verifier.verify(grant, SESSION) == CLAIMS


@pytest.mark.parametrize("times", [1, 2])
async def test_a_grant_for_another_resource(signer: GrantSigner, verifier: GrantVerifier, times: int) -> None:
    grant = signer.sign(CLAIMS)
    for _ in range(times):
        with pytest.raises(WrongResource) as caught:
            await verifier.verify(grant, "projects/q/sessions/s")
        assert caught.value.reason_name == "WRONG_RESOURCE"
        assert caught.value.metadata == {"resource": "projects/q/sessions/s", "granted": SESSION}
    assert await verifier.verify(grant, SESSION) == CLAIMS


async def test_an_expired_grant(
    signer: GrantSigner, keys: Keys, verifier: GrantVerifier, clock: ManualClock
) -> None:
    """A second of skew is tolerated; what was verified before expires all the same."""
    grant = signer.sign(CLAIMS)
    await clock.advance(15.9)
    assert await verifier.verify(grant, SESSION) == CLAIMS
    await clock.advance(0.1)
    for _ in range(2):
        with pytest.raises(LeaseExpired) as caught:
            await verifier.verify(grant, SESSION)
        assert caught.value.reason_name == "LEASE_EXPIRED"
        assert caught.value.metadata == {
            "resource": SESSION,
            "holder": "runner/1",
            "token": "7",
            "expire_time": "2024-01-01T00:00:15Z",
        }


async def test_the_tolerated_skew_is_a_choice(signer: GrantSigner, keys: Keys, clock: ManualClock) -> None:
    await clock.advance(15)
    with pytest.raises(LeaseExpired):
        await GrantVerifier(keys, clock, max_clock_skew=0).verify(signer.sign(CLAIMS), SESSION)


async def test_keys_that_cannot_be_fetched_are_no_verdict(
    signer: GrantSigner, keys: Keys, verifier: GrantVerifier
) -> None:
    keys.failure = KeysUnavailable(cause="owner is away")
    with pytest.raises(KeysUnavailable):
        await verifier.verify(signer.sign(CLAIMS), SESSION)
    keys.failure = None
    assert await verifier.verify(signer.sign(CLAIMS), SESSION) == CLAIMS


async def test_a_grant_is_verified_once(signer: GrantSigner, keys: Keys, verifier: GrantVerifier) -> None:
    grant = signer.sign(CLAIMS)
    first = await verifier.verify(grant, SESSION)
    copy = grant_pb2.Grant.FromString(grant.SerializeToString())
    keys.failure = KeysUnavailable(cause="nobody may be asked again")
    assert await verifier.verify(copy, SESSION) is first
    assert keys.asked == 1


async def test_a_known_grant_does_not_suspend_its_caller(
    signer: GrantSigner, verifier: GrantVerifier
) -> None:
    grant = signer.sign(CLAIMS)
    await verifier.verify(grant, SESSION)
    again = verifier.verify(grant, SESSION)
    with pytest.raises(StopIteration):
        again.send(None)


async def test_refused_grants_are_not_remembered(keys: Keys, verifier: GrantVerifier) -> None:
    forged = GrantSigner("key_1", Ed25519PrivateKey.generate()).sign(CLAIMS)
    for _ in range(2):
        await _assert_invalid(verifier, forged, "signature")
    assert keys.asked == 2


async def test_what_is_remembered_is_bounded(signer: GrantSigner, keys: Keys, clock: ManualClock) -> None:
    verifier = GrantVerifier(keys, clock, cache_size=3)
    grants = [
        signer.sign(GrantClaims(SESSION, "runner/1", token, CLAIMS.expire_time, "runner"))
        for token in range(1, 6)
    ]
    for grant in grants:
        await verifier.verify(grant, SESSION)
    for grant in grants[2:]:
        await verifier.verify(grant, SESSION)
    assert keys.asked == 5
    await verifier.verify(grants[0], SESSION)
    assert keys.asked == 6


async def test_many_at_once_agree(signer: GrantSigner, verifier: GrantVerifier) -> None:
    grant = signer.sign(CLAIMS)
    results = await asyncio.gather(*(verifier.verify(grant, SESSION) for _ in range(20)))
    assert results == [CLAIMS] * 20


def test_claims_keep_microseconds() -> None:
    claims = GrantClaims(SESSION, "runner/1", 2**62, datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), "service")
    assert decode(encode(claims)) == claims


async def _assert_invalid(verifier: GrantVerifier, grant: grant_pb2.Grant, cause: str) -> None:
    with pytest.raises(GrantInvalid) as caught:
        await verifier.verify(grant, SESSION)
    assert caught.value.reason_name == "GRANT_INVALID"
    assert caught.value.metadata["resource"] == SESSION
    assert cause in caught.value.metadata["cause"]
