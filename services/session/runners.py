"""Runners, as the labels of their leases `runners/{id}` describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import FailedPrecondition, FieldViolation, InvalidArgument

PREFIX: Final = "runners/"


@dataclass(frozen=True, slots=True)
class Runner:
    """A live runner; `capacity` is how many turns it takes at the same time.

    `networked` are those of its profiles whose agents need a network.
    """

    holder: str
    endpoint: str
    pool: str
    capacity: int
    profiles: frozenset[str]
    networked: frozenset[str] = frozenset()


class ProfileUnknown(InvalidArgument):
    """{field}: no live runner of the pool {pool} offers the profile {profile}; known: {profiles}"""

    reason = ErrorReason.ERROR_REASON_PROFILE_UNKNOWN


class NetworkRequired(FailedPrecondition):
    """{field}: agents of the profile {profile} need a network, and that of the workspace is {network}"""

    reason = ErrorReason.ERROR_REASON_NETWORK_REQUIRED


def runner_of(holder: str, endpoint: str, labels: Mapping[str, str]) -> Runner:
    """Read a lease; a capacity that is no number counts as none."""
    capacity = labels.get("capacity", "")
    return Runner(
        holder=holder,
        endpoint=endpoint,
        pool=labels.get("pool", ""),
        capacity=int(capacity) if capacity.isascii() and capacity.isdigit() else 0,
        profiles=_names(labels.get("profiles", "")),
        networked=_names(labels.get("networked", "")),
    )


def check_profile(profile: str, pool: str, runners: Iterable[Runner]) -> None:
    """ProfileUnknown when live runners serve the pool and none of them offers the profile."""
    serving = [runner for runner in runners if runner.pool == pool]
    known = frozenset[str]().union(*(runner.profiles for runner in serving))
    if serving and profile not in known:
        raise _unknown("agent.profile", profile, pool, ", ".join(sorted(known)))


def check_network(profile: str, network: str, pool: str, runners: Iterable[Runner]) -> None:
    """NetworkRequired when a live runner of the pool says that the profile needs what `network` does not give."""
    if any(profile in runner.networked for runner in runners if runner.pool == pool):
        raise NetworkRequired(field="provision.network", profile=profile, network=network)


def _names(label: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, label.split(","))))


def _unknown(field: str, profile: str, pool: str, known: str) -> ProfileUnknown:
    violation = FieldViolation(field, f"no runner offers {profile!r}; known: {known or 'none'}")
    return ProfileUnknown(violations=(violation,), field=field, profile=profile, pool=pool, profiles=known)
