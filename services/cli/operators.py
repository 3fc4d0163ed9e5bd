"""Where operators' commands find the services that are not for clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import grpc
import typer

from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.state import find_running
from services.common.channels import open_channel

OwnerOption = Annotated[
    str,
    typer.Option(
        "--owner-address",
        envvar="MOORAGE_OWNER_ADDRESS",
        metavar="HOST:PORT",
        help="The owner service. Default: that of the `up` around this directory.",
    ),
]
WorkspaceOption = Annotated[
    str,
    typer.Option(
        "--workspace-address",
        envvar="MOORAGE_WORKSPACE_ADDRESS",
        metavar="HOST:PORT",
        help="The workspace service. Default: that of the `up` around this directory.",
    ),
]


class NoAddress(CommandFailed):
    """It is not known where the service is."""

    exit = Exit.CUT


@asynccontextmanager
async def channel_to(service: str, address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the address, else to the service of the `up` around this directory. Raises NoAddress."""
    running = None if address else find_running(Path.cwd())
    target = address or (getattr(running, service) if running else "")
    if not target:
        raise NoAddress(
            f"no `moorage up` runs here, so where is the {service} service?",
            hint=f"--{service}-address or MOORAGE_{service.upper()}_ADDRESS names it",
        )
    channel = open_channel(target)
    try:
        yield channel
    finally:
        await channel.close()
