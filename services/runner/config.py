"""Settings of the runner: flags, MOORAGE_RUNNER_*, then MOORAGE_*."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from services.common.addresses import Address
from services.common.settings import ListenAddress, PositiveSeconds, Seconds, ServiceSettings

TargetAddress = Annotated[str, AfterValidator(lambda text: str(Address.parse(text)))]


class RunnerSettings(ServiceSettings):
    """All settings; times in seconds."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_RUNNER_")

    listen: ListenAddress = Field(
        "127.0.0.1:7803", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    name: str = Field(
        "runner",
        description="holds the lease runners/NAME; different for each runner",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
    )
    pool: str = Field("default", description="the pool it serves", pattern=r"^[A-Za-z0-9_-]{1,63}$")
    capacity: int = Field(100, description="most turns in progress at the same time", gt=0)
    owner_address: TargetAddress = Field("127.0.0.1:7800", description="HOST:PORT of owner")
    journal_address: TargetAddress = Field("127.0.0.1:7811", description="HOST:PORT of session's journal")
    workspace_address: TargetAddress = Field("127.0.0.1:7802", description="HOST:PORT of workspace")
    profiles_directory: Path | None = Field(
        None, description="a directory of TOML files with agent profiles, besides the built-in ones"
    )
    secrets_directory: Path | None = Field(
        None, description="a directory of secrets that sessions may name, PROJECT/NAME for each"
    )
    lease_ttl: float = Field(15.0, description="length of its leases", ge=2, le=3600)
    call_timeout: PositiveSeconds = Field(10.0, description="for one call of another service")
    prepare_timeout: PositiveSeconds = Field(900.0, description="until the workspace is ready and claimed")
    agent_start_timeout: PositiveSeconds = Field(60.0, description="until the agent has introduced itself")
    load_timeout: PositiveSeconds = Field(60.0, description="until the agent has opened its session")
    cancel_timeout: PositiveSeconds = Field(10.0, description="for the agent to confirm a cancel")
    close_timeout: PositiveSeconds = Field(
        1.0, description="for the agent to exit at the end of its input, before it gets TERM"
    )
    terminate_timeout: PositiveSeconds = Field(
        2.0, description="for the agent to exit after TERM, before it is killed"
    )
    park_timeout: PositiveSeconds = Field(
        600.0, description="that an agent is kept alive after its turn, for the next one"
    )
    park_limit: int = Field(20, description="most agents kept alive between turns", ge=0)
    history_bytes: int = Field(
        64 * 1024,
        description="of what was said before, told to an agent that cannot know it",
        gt=0,
        le=1024 * 1024,
    )
    drain_timeout: Seconds = Field(
        30.0, description="that running turns have at shutdown before they are stopped"
    )
