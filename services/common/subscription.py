"""LISTEN on a connection of its own, made again whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import asyncpg

from services.common.errors import DependencyUnavailable
from services.common.hosts import Connection, connect
from services.common.loops import forever
from services.common.settings import DatabaseSettings

# A peer that vanished without a word is noticed after this time.
_HEARTBEAT: Final = 10.0
_LONGEST_DELAY: Final = 2.0


class Subscription:
    """One channel's notifications, handed to a callback while the context is open."""

    def __init__(
        self, settings: DatabaseSettings, name: str, channel: str, callback: Callable[[str], None]
    ) -> None:
        """See Database.listen."""
        self._settings = settings
        self._name = name
        self._channel = channel
        self._callback = callback
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Begin; returns before the first connection is made."""
        self._task = asyncio.create_task(
            forever(f"listening on {self._channel}", self._follow, longest_delay=_LONGEST_DELAY)
        )

    async def __aexit__(self, *_: object) -> None:
        """End, and wait until the connection is closed."""
        if self._task is not None:
            self._task.cancel()
            # Not awaited itself: its cancellation could not be told from one of the caller.
            await asyncio.wait({self._task})

    async def _follow(self) -> None:
        """Deliver until the connection is lost, which is an error."""
        connection = await self._connect()
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(self._channel, self._deliver)
            self._callback("")
            while not lost.is_set():
                # Not wait_for: in Python 3.11 it forgets a cancellation that meets what it waits for.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HEARTBEAT):
                        await lost.wait()
                    break
                await _require_writable(connection)
            raise DependencyUnavailable(dependency="database", cause="the listening connection was lost")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise DependencyUnavailable(dependency="database", cause=str(error)) from error
        finally:
            connection.terminate()

    async def _connect(self) -> Connection:
        settings = self._settings
        try:
            return await connect(
                settings.direct_url,
                # A standby takes no LISTEN.
                target_session_attrs="read-write",
                timeout=settings.database_connect_timeout,
                command_timeout=settings.database_command_timeout,
                server_settings={"application_name": f"{self._name} listen {self._channel}"},
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise DependencyUnavailable(dependency="database", cause=str(error)) from error

    def _deliver(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._callback(str(payload))


async def _require_writable(connection: Connection) -> None:
    """A primary that was replaced and still lives notifies nobody."""
    if await connection.fetchval("SELECT current_setting('transaction_read_only')::boolean"):
        raise DependencyUnavailable(dependency="database", cause="not a writable primary any more")
