"""The four services, of which the session service can be killed and started again at its address."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from services.cli.database import DatabaseAddress
from services.cli.ports import choose
from services.cli.stack import PORTS, StackOptions, service_specs
from services.cli.state import Running
from services.cli.supervisor import ServiceFailed, ServiceSpec, Supervisor


@dataclass(frozen=True)
class Restartable:
    """Running services; `session` supervises the session service only."""

    address: str
    session: Supervisor
    spec: ServiceSpec

    async def start(self, **environment: str) -> None:
        """Start the session service at its address."""
        spec = replace(self.spec, environment={**self.spec.environment, **environment})
        await self.session.start(spec)
        await self.session.wait_ready()

    async def kill(self) -> None:
        """End it as a lost machine does."""
        for pid in self.session.pids:
            os.kill(pid, signal.SIGKILL)
        await self.until_killed()

    async def until_killed(self) -> None:
        """Wait until a failpoint has killed it."""
        with contextlib.suppress(ServiceFailed):
            await self.session.wait_failure()
        await self.session.stop()


@contextlib.asynccontextmanager
async def restartable(root: Path, state: Path, database_url: str) -> AsyncIterator[Restartable]:
    """All but the session service run within the block."""
    options = StackOptions(root, state, listen=dict.fromkeys(PORTS, "127.0.0.1:0"))
    running = Running(0, str(root), str(options.logs), **choose(PORTS, options.listen))
    database = DatabaseAddress(database_url)
    specs = {spec.name: spec for spec in service_specs(options, running, database)}
    async with Supervisor(options.logs) as others, Supervisor(options.logs) as session:
        for name in ("owner", "workspace", "runner"):
            await others.start(specs[name])
        yield Restartable(running.session, session, specs["session"])
