"""Commits that outlive a crash, however the server is configured."""

from __future__ import annotations

from services.common.database import Connection


async def commit_durably(connection: Connection) -> None:
    """A grant or renewal that a crash could undo would be shown by its holder all the same."""
    await connection.execute(
        """
        SELECT set_config('synchronous_commit', 'on', true)
        WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        """
    )
