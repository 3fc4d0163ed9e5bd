"""`python -m services.workspace.docker`: what containers need of this machine, looked at where no instance does.

A line of JSON: `version` of the engine or `cause`, why it does not answer; `helper`, why there is none.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from typing import Final

from services.common.logs import configure_logging
from services.common.settings import load_settings
from services.workspace.config import EngineSettings
from services.workspace.docker.engine import Engine
from services.workspace.docker.exec.helper import why_missing
from services.workspace.docker.stock import Stock

# Somebody waits for it.
_TIMEOUT: Final = 3.0


def main() -> None:
    """Look once."""
    settings = load_settings(EngineSettings)
    configure_logging(settings, "workspace")
    sys.stdout.write(json.dumps(asyncio.run(_found(settings.docker_host))) + "\n")


async def _found(address: str) -> dict[str, str]:
    engine = Engine(address, threads=1, timeout=_TIMEOUT, expected=False)
    stock = Stock(engine, ())
    await stock.look()
    state = stock.last
    engine.close()
    return {"version": state.version, "cause": state.cause, "helper": why_missing(platform.machine())}


if __name__ == "__main__":
    main()
