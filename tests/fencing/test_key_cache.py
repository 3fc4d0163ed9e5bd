"""Keys are fetched before anything is verified, again for a new name, and never in a rush (F3)."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from moorage.owner.v1.lease_pb2 import ListGrantKeysRequest

from services.common.clock import ManualClock
from services.fencing.errors import KeysUnavailable
from services.fencing.grants import GrantSigner
from services.fencing.keys import KeyCache
from tests.conditions import eventually
from tests.fencing.scripted import Context, ScriptedOwner, failing
from tests.fencing.timing import advance_until


@pytest.fixture
def cache(channel: grpc.aio.Channel, clock: ManualClock) -> KeyCache:
    return KeyCache(channel, clock)


async def test_without_keys_it_is_not_ready(cache: KeyCache) -> None:
    with pytest.raises(KeysUnavailable):
        await cache.ready()
    await cache.refresh()
    await cache.ready()


async def test_its_error_says_why(owner: ScriptedOwner, cache: KeyCache) -> None:
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(KeysUnavailable):
        await cache.refresh()
    with pytest.raises(KeysUnavailable) as caught:
        await cache.ready()
    assert caught.value.metadata["cause"] == "as the test says"
    assert caught.value.reason_name == "DEPENDENCY_UNAVAILABLE"


async def test_an_owner_without_keys_gives_none(owner: ScriptedOwner, cache: KeyCache) -> None:
    owner.keys = []
    with pytest.raises(KeysUnavailable):
        await cache.refresh()
    with pytest.raises(KeysUnavailable):
        await cache.ready()


async def test_it_keeps_what_it_has_while_owner_is_away(owner: ScriptedOwner, cache: KeyCache) -> None:
    await cache.refresh()
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(KeysUnavailable):
        await cache.refresh()
    await cache.ready()
    assert await cache.get("key_1") is not None


async def test_the_loop_fetches_until_there_are_keys_and_drops_retired_ones(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock
) -> None:
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)] * 3
    running = asyncio.create_task(cache.run())
    await advance_until(clock, lambda: len(owner.asked) == 4)
    await eventually(lambda: clock.sleepers == 1)
    old = await _public(cache, "key_1")
    assert old == owner.signer.public_key
    new = GrantSigner("key_2", Ed25519PrivateKey.generate())
    owner.keys = [new]
    await clock.advance(299)
    assert len(owner.asked) == 4
    await clock.advance(1)
    await eventually(lambda: clock.sleepers == 1 and len(owner.asked) == 5)
    assert await _public(cache, "key_2") == new.public_key
    getting = asyncio.ensure_future(cache.get("key_1"))
    await advance_until(clock, getting.done)
    assert await getting is None
    running.cancel()
    await asyncio.wait({running})


async def test_an_unknown_name_is_asked_for_once_by_all_who_wait(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock
) -> None:
    await cache.refresh()
    await clock.advance(10)
    owner.keys = [GrantSigner("key_2", Ed25519PrivateKey.generate()), owner.signer]
    found = await asyncio.gather(*(cache.get("key_2") for _ in range(20)), cache.get("key_3"))
    assert [key is not None for key in found] == [True] * 20 + [False]
    assert len(owner.asked) == 2


async def test_unknown_names_ask_once_a_second(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock
) -> None:
    await cache.refresh()
    await clock.advance(10)
    assert await cache.get("forged_1") is None
    waiting = [asyncio.ensure_future(cache.get(f"forged_{number}")) for number in range(2, 12)]
    await clock.until_sleeping()
    assert len(owner.asked_for(ListGrantKeysRequest)) == 2
    await clock.advance(0.9)
    assert len(owner.asked_for(ListGrantKeysRequest)) == 2
    await clock.advance(0.1)
    # All who came meanwhile are answered by one more fetch.
    assert await asyncio.gather(*waiting) == [None] * 10
    assert len(owner.asked_for(ListGrantKeysRequest)) == 3


async def test_a_key_made_during_a_fetch_is_not_missed(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock
) -> None:
    """Who asks while a fetch is under way cannot rely on what that one brings."""
    await cache.refresh()
    await clock.advance(10)
    new = GrantSigner("key_2", Ed25519PrivateKey.generate())
    fetched, answer = asyncio.Event(), asyncio.Event()

    async def hang(_context: Context) -> None:
        fetched.set()
        await answer.wait()

    owner.after = [hang]
    first = asyncio.ensure_future(cache.get("key_2"))
    await fetched.wait()
    owner.keys = [new, owner.signer]
    second = asyncio.ensure_future(cache.get("key_2"))
    await asyncio.sleep(0)
    answer.set()
    assert await first is None
    await advance_until(clock, second.done)
    assert await second is not None


async def test_an_unknown_name_without_owner_is_no_verdict(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock
) -> None:
    await cache.refresh()
    await clock.advance(10)
    owner.before = [failing(grpc.StatusCode.UNAVAILABLE)]
    results = await asyncio.gather(*(cache.get("key_2") for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [KeysUnavailable] * 5


@pytest.mark.parametrize("came", ["before the fetch", "during the fetch"])
async def test_a_cancelled_asker_leaves_the_others_alone(
    owner: ScriptedOwner, cache: KeyCache, clock: ManualClock, came: str
) -> None:
    await cache.refresh()
    await clock.advance(10)
    asked = asyncio.Event()

    async def hang(_context: Context) -> None:
        asked.set()
        await asyncio.Event().wait()

    owner.before = [hang]
    owner.keys = [GrantSigner("key_2", Ed25519PrivateKey.generate())]
    first = asyncio.ensure_future(cache.get("key_2"))
    if came == "during the fetch":
        await asked.wait()
    second = asyncio.ensure_future(cache.get("key_2"))
    await asked.wait()
    await asyncio.sleep(0)
    first.cancel()
    await advance_until(clock, second.done)
    assert await second is not None


async def _public(cache: KeyCache, kid: str) -> bytes:
    key = await cache.get(kid)
    assert isinstance(key, Ed25519PublicKey)
    return key.public_bytes_raw()
