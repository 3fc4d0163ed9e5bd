"""PostgreSQL: a pool that survives restarts, failovers and cancelled queries, with timeouts everywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Self, TypeAlias, cast

import asyncpg
from asyncpg.transaction import Transaction

from services.common.errors import DependencyUnavailable, Unavailable
from services.common.hosts import connect
from services.common.schema import check_schema
from services.common.settings import DatabaseSettings
from services.common.subscription import Subscription

__all__ = ["Connection", "Database", "check_schema"]

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

_ROLLBACK_TIMEOUT: Final = 2.0
# Less than a probe's patience: one that finds a server hanging makes the pool leave it.
_PING_TIMEOUT: Final = 2.0
_RETRY_AFTER: Final = 1.0

# After these the other connections of the pool are no better: the server went away, hangs or was demoted.
_LOST: Final = (
    # The server would have ended the statement before.
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
    # What asyncpg makes of a farewell of the server that comes between two statements.
    asyncpg.InternalClientError,
    ConnectionError,
)
# A query may still run on the connection: nothing more can be sent on it.
_INTERRUPTED: Final = (asyncio.CancelledError, TimeoutError)
# The statement did not run to its end, through no fault of the request.
_TRANSIENT: Final = (
    *_LOST,
    asyncpg.QueryCanceledError,
    asyncpg.TooManyConnectionsError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
)


class Database:
    """The pool of one process. It never connects before it is used."""

    def __init__(self, settings: DatabaseSettings, *, name: str = "moorage") -> None:
        """`name` is shown in pg_stat_activity."""
        self._settings = settings
        self._name = name
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> Self:
        """Make the pool; succeeds while the server is down."""
        settings = self._settings
        self._pool = await asyncpg.create_pool(
            settings.database_url,
            connect=cast("Any", connect),
            # A floor of connections would be kept by a task that logs a stack at each failure.
            min_size=0,
            max_size=settings.database_pool_size,
            timeout=settings.database_connect_timeout,
            command_timeout=settings.database_command_timeout,
            reset=_keep,
            **_session(settings, self._name),
        )
        return self

    async def close(self) -> None:
        """Wait shortly for those who hold a connection, then cut."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(_ROLLBACK_TIMEOUT):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection outside of any transaction: each statement commits by itself."""
        pool = self._require_pool()
        connection = await self._acquire(pool)
        try:
            yield connection
        except BaseException as error:
            await self._after(error, connection)
            raise
        finally:
            await _release(pool, connection)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a READ COMMITTED transaction: commits at the end, rolls back on any error.

        A connection that is lost while it commits raises Unavailable though the commit may stand:
        what must not happen twice is guarded by a request id or a state.
        """
        async with self.connection() as connection, _within(connection, connection.transaction()):
            yield connection

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """A transaction that only reads, and whose statements all see the same moment."""
        async with self.connection() as connection:
            reading = connection.transaction(isolation="repeatable_read", readonly=True)
            async with _within(connection, reading):
                yield connection

    async def ping(self) -> None:
        """Return when this is a primary that can be written to, else raise Unavailable."""
        async with self.connection() as connection:
            read_only = await connection.fetchval(
                "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean",
                timeout=_PING_TIMEOUT,
            )
        if read_only:
            await self._require_pool().expire_connections()
            raise DependencyUnavailable(dependency="database", cause="not a writable primary")

    def readiness(self, service: str) -> Callable[[], Awaitable[None]]:
        """The probe of a service: its schema is right (until seen once), the primary writable."""
        checked = False

        async def probe() -> None:
            nonlocal checked
            if not checked:
                await check_schema(self, service)
                checked = True
            await self.ping()

        return probe

    def listen(
        self, channel: str, callback: Callable[[str], None]
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """While open, call `callback` with the payload of each NOTIFY on `channel`.

        It uses a direct connection of its own that is made again when lost. Notifications may be
        missed meanwhile, so after each connect `callback` gets an empty payload: look for yourself.
        """
        return Subscription(self._settings, self._name, channel, callback)

    def _require_pool(self) -> asyncpg.Pool[asyncpg.Record]:
        if self._pool is None:
            raise RuntimeError("the database is not open")
        return self._pool

    async def _acquire(self, pool: asyncpg.Pool[asyncpg.Record]) -> Connection:
        try:
            return await pool.acquire(timeout=self._settings.database_acquire_timeout)
        except TimeoutError as error:
            seconds = self._settings.database_acquire_timeout
            raise _unavailable(f"no connection within {seconds:g} s") from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise _unavailable(_one_line(error)) from error

    async def _after(self, error: BaseException, connection: Connection) -> None:
        """Leave the connection and the pool in order, and turn trouble of the server into Unavailable."""
        lost = _is_lost(connection) or isinstance(error, _LOST)
        if lost or isinstance(error, _INTERRUPTED):
            _terminate(connection)
        if lost:
            await self._require_pool().expire_connections()
        if isinstance(error, _TRANSIENT) or (lost and isinstance(error, asyncpg.InterfaceError)):
            raise _unavailable(_one_line(error)) from error


@contextlib.asynccontextmanager
async def _within(connection: Connection, transaction: Transaction) -> AsyncIterator[None]:
    await transaction.start()
    try:
        yield
    except BaseException as error:
        if not (_is_lost(connection) or isinstance(error, _INTERRUPTED)):
            await _roll_back(transaction, connection)
        raise
    await transaction.commit()


async def _roll_back(transaction: Transaction, connection: Connection) -> None:
    try:
        async with asyncio.timeout(_ROLLBACK_TIMEOUT):
            await transaction.rollback()
    except Exception:  # noqa: BLE001 (the first error is the one to report)
        _terminate(connection)


async def _release(pool: asyncpg.Pool[asyncpg.Record], connection: Connection) -> None:
    with contextlib.suppress(Exception):
        await pool.release(connection, timeout=_ROLLBACK_TIMEOUT)


async def _keep(_connection: object) -> None:
    """Instead of asyncpg's reset at each release: stores keep no session state, and it is a round trip."""


def _session(settings: DatabaseSettings, name: str) -> dict[str, Any]:
    if settings.database_pooler:
        # Its connections change from one transaction to the next: nothing may be kept in them.
        return {"statement_cache_size": 0}
    return {
        # Refuses a standby at once, and takes the primary where the URL names several hosts.
        "target_session_attrs": "read-write",
        "server_settings": {
            "application_name": name,
            "statement_timeout": f"{settings.database_statement_timeout * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{settings.database_idle_timeout * 1000:.0f}",
            # A terminated connection's statement ends too, and with it the locks it holds.
            "client_connection_check_interval": "1000",
        },
    }


def _is_lost(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        # The pool took it back when the server closed it.
        return True


def _terminate(connection: Connection) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):
        connection.terminate()


def _unavailable(cause: str) -> Unavailable:
    return DependencyUnavailable(dependency="database", cause=cause, retry_after=_RETRY_AFTER)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
