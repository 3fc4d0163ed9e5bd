"""Settings of a service: flags, then the service's variables, then variables of all services.

`listen` of the owner service is `--listen`, MOORAGE_OWNER_LISTEN or MOORAGE_LISTEN, in this order.
A bad value ends the process with one line that names the setting and exit code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    Field,
    PositiveFloat,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from services.common.addresses import Address
from services.common.validation import in_own_words

SHARED_PREFIX: Final = "MOORAGE_"
_USAGE: Final = 2

Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = PositiveFloat
ListenAddress = Annotated[str, AfterValidator(lambda text: str(Address.parse(text)))]
AdvertiseAddress = Annotated[str, AfterValidator(lambda text: str(Address.parse(text, default_port=0)))]


def _check_database_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql://")
    return text


DatabaseUrl = Annotated[str, AfterValidator(_check_database_url)]


def with_password(url: str, file: Path) -> str:
    """A database's URL with the password that a file holds; ValueError where it cannot be had."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if not at or ":" in user:
        raise ValueError("must name a user, without a password, where the password is in a file")
    try:
        password = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the password file cannot be read: {error}") from error
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}"))


class CommonSettings(BaseSettings):
    """What every process has. Subclass it with `env_prefix="MOORAGE_<SERVICE>_"`."""

    model_config = SettingsConfigDict(
        env_prefix=SHARED_PREFIX,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_exit_on_error=False,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level logged")
    log_format: Literal["json", "console"] = Field(
        "json", description="json for machines, console for people"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and arguments, the service's variables, the variables of all services."""
        shared = EnvSettingsSource(settings_cls, env_prefix=SHARED_PREFIX)
        return init_settings, env_settings, shared


class ServiceSettings(CommonSettings):
    """What every service that listens has.

    A setting named `listen` or `<x>_listen` is an address to serve on, with its own
    `advertise` or `<x>_advertise` beside it; each is guarded alike.
    """

    listen: ListenAddress = Field(
        "127.0.0.1:7800", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    advertise: AdvertiseAddress | None = Field(
        None, description="HOST[:PORT] at which others reach this process; without PORT the one served on"
    )
    insecure: bool = Field(False, description="serve beyond loopback without TLS and authentication")
    drain_delay: Seconds = Field(0.0, description="seconds from not ready to the start of the drain")
    shutdown_grace: Seconds = Field(5.0, description="seconds that calls in progress have at shutdown")
    readiness_interval: PositiveSeconds = Field(
        1.0, description="seconds between looks at the dependencies", le=1.0
    )
    max_message_bytes: int = Field(4 * 1024 * 1024, description="largest message received", gt=0)
    min_client_ping_interval: PositiveSeconds = Field(
        5.0, description="seconds between keepalive pings below which a client is disconnected"
    )

    def listeners(self) -> dict[str, tuple[Address, Address | None]]:
        """The address served on and the advertised one of each listener, by its setting's name."""
        fields = type(self).model_fields
        return {name: self._listener(name) for name in fields if name == "listen" or name.endswith("_listen")}

    def _listener(self, name: str) -> tuple[Address, Address | None]:
        advertised = getattr(self, name.removesuffix("listen") + "advertise", None)
        return (
            Address.parse(getattr(self, name)),
            Address.parse(advertised, default_port=0) if advertised else None,
        )

    @model_validator(mode="after")
    def _guard(self) -> Self:
        for name, (address, advertised) in self.listeners().items():
            _guard_listener(name, address, advertised, insecure=self.insecure)
        return self


class DatabaseSettings(CommonSettings):
    """What every service with a database has; mix it in."""

    # Before the URLs, which are completed with it.
    database_password_file: Path | None = Field(
        None, description="file with the password, where the URLs name a user only"
    )
    database_url: DatabaseUrl = Field(description="postgresql://USER@HOST/DATABASE", repr=False)
    database_direct_url: DatabaseUrl | None = Field(
        None,
        description="the same database without a pooler in between, for LISTEN and migrations",
        repr=False,
    )
    database_pooler: bool = Field(False, description="database_url leads to a pooler in transaction mode")
    database_pool_size: int = Field(10, description="most connections of this process", gt=0)
    database_connect_timeout: PositiveSeconds = Field(5.0, description="seconds to connect")
    database_acquire_timeout: PositiveSeconds = Field(
        5.0, description="seconds to wait for a free connection"
    )
    database_statement_timeout: PositiveSeconds = Field(
        8.0, description="seconds after which the server cancels"
    )
    database_command_timeout: PositiveSeconds = Field(
        10.0, description="seconds after which we give up waiting"
    )
    database_idle_timeout: PositiveSeconds = Field(30.0, description="seconds a transaction may be idle")

    @field_validator("database_url", "database_direct_url")
    @classmethod
    def _add_password(cls, url: str | None, info: ValidationInfo) -> str | None:
        file = info.data.get("database_password_file")
        return with_password(url, file) if url and file else url

    @property
    def direct_url(self) -> str:
        """The address for sessions that keep state."""
        return self.database_direct_url or self.database_url


SettingsT = TypeVar("SettingsT", bound=CommonSettings)


def load_settings(cls: type[SettingsT], argv: Sequence[str] | None = None) -> SettingsT:
    """Read flags and environment; a bad value prints one line and exits with 2."""
    program = program_of(cls)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        flags: CliSettingsSource[Any] = CliSettingsSource(
            cls, cli_prog_name=program, cli_parse_args=arguments
        )
        return cls(**flags())
    except SettingsError as error:
        _refuse(program, str(error).removeprefix("error parsing CLI: "))
    except ValidationError as error:
        _refuse(program, "; ".join(_describe(cls, dict(item)) for item in error.errors()))


def program_of(cls: type[CommonSettings]) -> str:
    """`moorage-owner` for MOORAGE_OWNER_."""
    return str(cls.model_config.get("env_prefix", SHARED_PREFIX)).strip("_").lower().replace("_", "-")


def _guard_listener(name: str, address: Address, advertised: Address | None, *, insecure: bool) -> None:
    if not address.is_loopback and not insecure:
        raise ValueError(
            f"{_flag(name)}: {address} can be reached from other machines; TLS and authentication "
            "are not available yet, so this needs --insecure"
        )
    if address.is_wildcard and advertised is None:
        advertise = _flag(name.removesuffix("listen") + "advertise")
        raise ValueError(
            f"{_flag(name)}: {address} stands for every address of this machine; "
            f"say with {advertise} at which of them others reach it"
        )


def _describe(cls: type[CommonSettings], problem: dict[str, Any]) -> str:
    message = in_own_words(str(problem["msg"]))
    if not problem["loc"]:
        return message
    field = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{_names(cls, field)} is required"
    shown = f" (got {problem['input']!r})" if cls.model_fields[field].repr else ""
    return f"{_names(cls, field)}: {message}{shown}"


def _names(cls: type[CommonSettings], field: str) -> str:
    prefix = str(cls.model_config.get("env_prefix", SHARED_PREFIX))
    variables = dict.fromkeys((prefix + field.upper(), SHARED_PREFIX + field.upper()))
    used = [name for name in variables if name in os.environ] or list(variables)
    return f"{_flag(field)} ({', '.join(used)})"


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _refuse(program: str, message: str) -> NoReturn:
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 (no logging yet)
    sys.exit(_USAGE)
