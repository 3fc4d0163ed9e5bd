"""The private engine of the tests does what faults need of it."""

from __future__ import annotations

import asyncio

import docker
import pytest
import requests

from tests.engines import BUSYBOX, private_engine


@pytest.mark.timeout(120)
async def test_an_engine_can_be_paused_killed_and_started_again() -> None:
    async with private_engine() as engine:
        with engine.client() as client:
            made = await asyncio.to_thread(
                client.containers.run, BUSYBOX, ["sleep", "600"], detach=True, network_mode="none"
            )
        impatient = docker.DockerClient(engine.address, timeout=1)
        engine.pause()
        with pytest.raises(requests.exceptions.ReadTimeout):
            await asyncio.to_thread(impatient.ping)
        engine.resume()
        assert await asyncio.to_thread(impatient.ping)
        await engine.kill()
        await engine.start()
        with engine.client() as client:
            (left,) = await asyncio.to_thread(client.containers.list, all=True)
            assert (left.id, left.status) == (made.id, "exited")
        impatient.close()
    assert not engine.directory.exists()
