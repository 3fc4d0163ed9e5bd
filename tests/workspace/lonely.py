"""A caller of Exec as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import sys

from moorage.common.v1.grant_pb2 import Grant

from services.common.channels import open_channel
from tests.workspace.instances import Client


async def main(endpoint: str, grant: str, script: str) -> None:
    async with (
        open_channel(endpoint) as channel,
        Client(channel).exec(Grant.FromString(bytes.fromhex(grant)), "sh", "-c", script) as stream,
    ):
        await stream.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
