"""A holder as a process of its own: `holder_program.py ENDPOINT RESOURCE TTL`.

It answers each line on its input with whether it holds the lease, as the first thing it does
after the line has come.
"""

from __future__ import annotations

import asyncio
import sys

from services.common.channels import open_channel
from services.common.clock import SystemClock
from services.common.logs import configure_logging
from services.common.settings import CommonSettings
from services.fencing.loop import LeaseLoop, mint_holder


async def hold(endpoint: str, resource: str, ttl: float) -> None:
    async with open_channel(endpoint) as channel:
        leases = LeaseLoop(mint_holder("paused"), channel, SystemClock())
        running = asyncio.create_task(leases.run())
        lease = await leases.acquire(resource, ttl=ttl, labels={"role": "runner"})
        answer(lease.token)
        while await asyncio.to_thread(sys.stdin.readline):
            answer(lease.held)
        running.cancel()


def answer(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    configure_logging(CommonSettings(), "holder")
    asyncio.run(hold(sys.argv[1], sys.argv[2], float(sys.argv[3])))
