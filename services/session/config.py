"""Settings of the session service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import (
    AdvertiseAddress,
    DatabaseSettings,
    ListenAddress,
    PositiveSeconds,
    ServiceSettings,
)

_DAY = 24 * 3600.0


class SessionSettings(ServiceSettings, DatabaseSettings):
    """Settings; each is a flag and a variable."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_SESSION_")

    listen: ListenAddress = Field("127.0.0.1:7801", description="HOST:PORT to serve clients on")
    journal_listen: ListenAddress = Field("127.0.0.1:7811", description="HOST:PORT to serve runners on")
    journal_advertise: AdvertiseAddress | None = Field(
        None, description="HOST[:PORT] at which runners reach the journal"
    )
    owner_address: str = Field("127.0.0.1:7800", description="gRPC target of owner")
    workspace_address: str = Field("127.0.0.1:7802", description="gRPC target of workspace")
    default_profile: str = Field(
        "demo", description="agent of a session that names none", pattern=r"^[A-Za-z0-9_-]{1,64}$"
    )
    pool: str = Field(
        "default", description="pool of the runners that turns are given to", pattern=r"^[A-Za-z0-9_-]{1,63}$"
    )
    store_window: PositiveSeconds = Field(
        300.0,
        description="seconds within which a session is stored after its workspace was asked for;"
        " half of what the workspace service waits for it",
    )
    default_max_duration: PositiveSeconds = Field(6 * 3600.0, description="seconds a turn may last")
    default_max_silence: PositiveSeconds = Field(15 * 60.0, description="seconds an agent may be silent")
    dispatch_window: PositiveSeconds = Field(
        60.0, description="seconds after which a turn that no runner began fails"
    )
    queue_limit: int = Field(20, description="turns that may wait in a session's queue", ge=1, le=1000)
    queue_expiry: PositiveSeconds = Field(_DAY, description="seconds a turn may wait in the queue")
    preparing_timeout: PositiveSeconds = Field(
        15 * 60.0, description="seconds a begun turn may prepare its workspace"
    )
    stop_delivery: str = Field("direct", description="how holders are told of a Stop")
    interaction_timeout: PositiveSeconds = Field(
        3600.0, description="seconds a question waits for its answer"
    )
    stop_budget: PositiveSeconds = Field(
        10.0, description="seconds an agent has to end a stopped turn by itself"
    )
    stop_kill_after: PositiveSeconds = Field(2.0, description="seconds between TERM and KILL after that")
    stop_margin: PositiveSeconds = Field(
        30.0, description="seconds on top of both before a Stop is given up on"
    )
    command_retention: PositiveSeconds = Field(
        7 * _DAY, description="seconds a settled command is kept", ge=600.0
    )
    watch_heartbeat: PositiveSeconds = Field(15.0, description="seconds between signs of life of a watch")
    watch_poll: PositiveSeconds = Field(1.0, description="seconds between looks for records nobody told of")
    watchdog_interval: PositiveSeconds = Field(
        2.0, description="seconds between looks for turns that lost their holder"
    )
    service_lease: PositiveSeconds = Field(
        5.0, description="seconds of a lease that the watchdog takes", ge=2.0
    )
    fence_timeout: PositiveSeconds = Field(
        5.0, description="seconds for which a workspace is asked to end what a lost holder left"
    )
    admitted_patience: PositiveSeconds = Field(
        20.0, description="seconds a live holder may leave a turn unbegun before it is replaced"
    )
    close_patience: PositiveSeconds = Field(
        60.0, description="seconds a closing session may be held without a turn before its holder is replaced"
    )
    overrun_margin: PositiveSeconds = Field(
        30.0, description="seconds on top of a turn's bounds before it is stopped from here"
    )
    sweep_interval: PositiveSeconds = Field(
        5.0, description="seconds between looks for turns that their live holders do not run"
    )
    max_clock_skew: PositiveSeconds = Field(1.0, description="seconds that clocks of services may be apart")
    request_id_retention: PositiveSeconds = Field(_DAY, description="seconds a request id is remembered")
