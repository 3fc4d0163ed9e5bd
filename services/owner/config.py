"""Settings of the owner service: MOORAGE_OWNER_* and the flags of the same names."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from services.common.settings import DatabaseSettings, ListenAddress, PositiveSeconds, ServiceSettings

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
    key_lifetime: PositiveSeconds = Field(90 * _DAY, description="seconds after which a new key signs")
    key_refresh: PositiveSeconds = Field(60.0, description="seconds between looks at the signing keys")

    @property
    def key_overlap(self) -> float:
        """Seconds that a replaced key stays valid: longer than any grant it may have signed."""
        return 2 * self.max_ttl + 10 * self.key_refresh

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.min_ttl <= self.default_ttl <= self.max_ttl:
            raise ValueError("--min-ttl, --default-ttl and --max-ttl must not decrease in this order")
        if self.key_lifetime <= self.key_overlap:
            raise ValueError("--key-lifetime must be longer than a replaced key stays valid")
        return self
