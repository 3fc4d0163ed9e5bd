"""What a workspace that is to be made shall be."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Self

from services.common.errors import InvalidArgument
from services.common.quantities import told_bytes
from services.workspace.sources.wanted import Setup, Source, setup_json, setup_of, source_json, source_of


class Network(enum.StrEnum):
    """What a workspace's processes can reach; UNSPECIFIED is the provider's default."""

    UNSPECIFIED = "UNSPECIFIED"
    HOST = "HOST"
    NONE = "NONE"
    BRIDGE = "BRIDGE"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of all processes together; None is none, or none asked for."""

    cpus: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None

    def within(self, most: Limits, least: Limits) -> Limits:
        """These, with `most` for what is absent; InvalidArgument for one that is out of bounds."""
        return Limits(
            _within("cpus", self.cpus, most.cpus, least.cpus, "{:g}".format),
            _within("memory_bytes", self.memory_bytes, most.memory_bytes, least.memory_bytes, told_bytes),
            _within("pids", self.pids, most.pids, least.pids, str),
        )


@dataclass(frozen=True, slots=True)
class Spec:
    """See ProvisionSpec. Of a stored workspace, the provider's defaults are filled in."""

    image: str = ""
    network: Network = Network.UNSPECIFIED
    limits: Limits = Limits()
    source: Source | None = None
    setup: Setup | None = None
    ttl: timedelta | None = None
    idle_ttl: timedelta | None = None

    def to_json(self) -> dict[str, Any]:
        """What is stored."""
        return {
            "image": self.image,
            "network": self.network,
            "limits": asdict(self.limits),
            "source": source_json(self.source),
            "setup": setup_json(self.setup),
            "ttl": _seconds(self.ttl),
            "idle_ttl": _seconds(self.idle_ttl),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """What was stored."""
        return cls(
            image=stored["image"],
            network=Network(stored["network"]),
            limits=Limits(**stored["limits"]),
            source=source_of(stored["source"]),
            setup=setup_of(stored["setup"]),
            ttl=_time(stored["ttl"]),
            idle_ttl=_time(stored["idle_ttl"]),
        )


def _within(name: str, value: Any, most: Any, least: Any, told: Callable[[Any], str]) -> Any:
    if value is None:
        return most
    if not least <= value <= most:
        bounds = f"must be from {told(least)} to {told(most)}, not {told(value)}"
        raise InvalidArgument.of(f"provision.limits.{name}", bounds)
    return value


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


def _time(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
