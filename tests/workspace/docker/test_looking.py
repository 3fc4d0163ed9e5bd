"""Whether the engine is there is asked again and again, also where no containers are made any more (F6, W4)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.workspace.docker.containers import User
from services.workspace.docker.engine import Engine
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.ground import Ground
from services.workspace.docker.provider import DockerProvider, Offer
from services.workspace.specs import Limits, Network
from tests.conditions import eventually


async def test_an_engine_that_has_containers_of_ours_is_looked_at_where_none_are_made(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/socket", threads=1, timeout=1.0)
    offer = Offer(enabled=False, images=(), limits=Limits(), network=Network.NONE)

    async def has_any() -> bool:
        return True

    ground = Ground("bridge", str(tmp_path), User(1, 1), "one")
    provider = DockerProvider(engine, Helpers(engine, lambda: 0.0), ground, offer, has_any)
    assert not provider.enabled
    looking = asyncio.create_task(provider.run())
    await eventually(lambda: bool(engine.cause), what="it is noticed that there is no engine")
    looking.cancel()
