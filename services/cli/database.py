"""Which database is meant: the same names as the services have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from services.cli.options import checked

URL_VARIABLE: Final = "MOORAGE_DATABASE_URL"
_DIRECT_VARIABLE: Final = "MOORAGE_DATABASE_DIRECT_URL"
_PASSWORD_VARIABLE: Final = "MOORAGE_DATABASE_PASSWORD_FILE"  # noqa: S105 (a variable's name)


def _check_url(url: str) -> None:
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("it must begin with postgresql://")


DatabaseOption = Annotated[
    str,
    typer.Option(
        envvar=URL_VARIABLE,
        metavar="URL",
        callback=checked(_check_url),
        help="postgresql://… of the database.",
    ),
]
DirectDatabaseOption = Annotated[
    str,
    typer.Option(
        "--database-direct-url",
        envvar=_DIRECT_VARIABLE,
        metavar="URL",
        callback=checked(_check_url),
        help="The same database without a pooler in between: migrations go there.",
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--database-password-file",
        envvar=_PASSWORD_VARIABLE,
        help="A file with the password, where the URLs name a user only.",
    ),
]


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A database as settings name it; nothing is named where there is no `url`."""

    url: str = ""
    direct_url: str = ""
    password_file: Path | None = None

    def environment(self) -> dict[str, str]:
        """What tells a service of it."""
        named = {
            URL_VARIABLE: self.url,
            _DIRECT_VARIABLE: self.direct_url,
            _PASSWORD_VARIABLE: str(self.password_file or ""),
        }
        return {name: value for name, value in named.items() if value}

    def for_migrations(self) -> str:
        """The URL that leads past a pooler, with the password. Raises typer.BadParameter."""
        url = self.direct_url or self.url
        if self.password_file is None:
            return url
        from services.common.settings import with_password  # noqa: PLC0415 (slow, and seldom needed)

        try:
            return with_password(url, self.password_file)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--database-password-file") from None
