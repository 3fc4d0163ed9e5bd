"""Whether the schema in the database is the one that this build was written for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.common.errors import StartupRefused
from services.common.migrations import head, version_in

if TYPE_CHECKING:
    from services.common.database import Database


class WrongSchema(StartupRefused):
    """The schema in the database is another one than this build needs."""


async def check_schema(database: Database, service: str) -> None:
    """Return when the service's schema is the one of this build, else raise WrongSchema."""
    expected = head(service)
    found = await _version(database, service)
    if found == expected:
        return
    if found is None:
        raise WrongSchema(f"the schema {service} is not in the database: run `moorage migrate`")
    remedy = "this build is older than the database" if found > expected else "run `moorage migrate`"
    raise WrongSchema(f"the schema {service} is at {found}, this build needs {expected}: {remedy}")


async def _version(database: Database, service: str) -> str | None:
    async with database.transaction() as connection:
        return await version_in(connection, service)
