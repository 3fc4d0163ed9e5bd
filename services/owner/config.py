"""Settings of the owner service: MOORAGE_OWNER_* and the flags of the same names."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.common.settings import DatabaseSettings, ListenAddress, PositiveSeconds, ServiceSettings
from services.owner.keys import KeySchedule

_DAY = 86_400.0


class OwnerSettings(ServiceSettings, DatabaseSettings):
    """Serves leases with fencing tokens and signed grants. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_OWNER_")

    listen: ListenAddress = Field(
        "127.0.0.1:7800", description="HOST:PORT to serve on; port 0 takes a free one"
    )
    default_ttl: PositiveSeconds = Field(15.0, description="seconds of a lease that asks for none")
    min_ttl: PositiveSeconds = Field(2.0, description="seconds of the shortest lease")
    max_ttl: PositiveSeconds = Field(3600.0, description="seconds of the longest lease")
    request_id_retention: PositiveSeconds = Field(_DAY, description="seconds that request ids are kept")
    purge_interval: PositiveSeconds = Field(600.0, description="seconds between purges of request ids")
    key_lifetime: PositiveSeconds = Field(90 * _DAY, description="seconds after which a new key is made")
    key_notice: PositiveSeconds = Field(
        900.0, description="seconds that a new key is listed before it signs; verifiers look every 300"
    )
    key_refresh: PositiveSeconds = Field(60.0, description="seconds between looks at the signing keys")

    @property
    def key_schedule(self) -> KeySchedule:
        """A replaced key stays valid for longer than any grant it may have signed."""
        overlap = 2 * self.max_ttl + 10 * self.key_refresh
        return KeySchedule(
            lifetime=timedelta(seconds=self.key_lifetime),
            notice=timedelta(seconds=self.key_notice),
            overlap=timedelta(seconds=overlap),
        )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.min_ttl <= self.default_ttl <= self.max_ttl:
            raise ValueError("--min-ttl, --default-ttl and --max-ttl must not decrease in this order")
        schedule = self.key_schedule
        if schedule.lifetime <= schedule.notice + schedule.overlap:
            raise ValueError(
                "--key-lifetime must be longer than a new key's notice and a replaced key's validity"
            )
        return self
