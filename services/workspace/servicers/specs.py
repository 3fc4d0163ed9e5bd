"""What is asked for and what is stored of a workspace that is made: the contract's, and the domain's."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_range, check_size, check_text, seconds_of
from services.workspace.servicers import sources
from services.workspace.specs import Limits, Network, Spec
from services.workspace.workspaces import Workspace

_LONGEST_IMAGE: Final = 512
_LONGEST_TTL: Final = 10 * 366 * 24 * 3600.0


def spec_of(asked: provision_pb2.ProvisionSpec) -> Spec:
    """What is asked for, its fields checked as far as they are the same for all providers."""
    check_size("provision.image", check_text("provision.image", asked.image), _LONGEST_IMAGE)
    return Spec(
        image=asked.image,
        network=network_of("provision.network", asked.network),
        limits=_limits_of(asked.limits),
        source=sources.source_of(asked.source),
        setup=sources.setup_of(asked.setup) if asked.HasField("setup") else None,
        ttl=time_of("provision.ttl", asked.ttl) if asked.HasField("ttl") else None,
        idle_ttl=time_of("provision.idle_ttl", asked.idle_ttl) if asked.HasField("idle_ttl") else None,
    )


def spec(stored: Workspace) -> provision_pb2.ProvisionSpec | None:
    """The contract's spec; None of what was supplied."""
    if stored.spec is None:
        return None
    return provision_pb2.ProvisionSpec(
        provider=stored.provider,
        image=stored.spec.image,
        network=network(stored.spec.network),
        limits=limits(stored.spec.limits),
        source=sources.source(stored.spec.source),
        setup=sources.setup(stored.spec.setup),
        ttl=_duration(stored.spec.ttl),
        idle_ttl=_duration(stored.spec.idle_ttl),
    )


def network_of(field: str, policy: provision_pb2.NetworkPolicy.ValueType) -> Network:
    """A policy that there is."""
    if policy not in provision_pb2.NetworkPolicy.values():
        raise InvalidArgument.of(field, "is none that this service knows")
    return Network(provision_pb2.NetworkPolicy.Name(policy).removeprefix("NETWORK_POLICY_"))


def network(policy: Network) -> provision_pb2.NetworkPolicy.ValueType:
    """The contract's policy."""
    return provision_pb2.NetworkPolicy.Value(f"NETWORK_POLICY_{policy}")


def network_in_force(stored: Workspace) -> provision_pb2.NetworkPolicy.ValueType:
    """What its processes can reach; those of a supplied directory are the instance's."""
    return network(Network.HOST if stored.spec is None else stored.spec.network)


def limits(of: Limits) -> provision_pb2.ResourceLimits:
    """The contract's limits."""
    return provision_pb2.ResourceLimits(cpus=of.cpus, memory_bytes=of.memory_bytes, pids=of.pids)


def _limits_of(asked: provision_pb2.ResourceLimits) -> Limits:
    return Limits(
        cpus=asked.cpus if asked.HasField("cpus") else None,
        memory_bytes=asked.memory_bytes if asked.HasField("memory_bytes") else None,
        pids=asked.pids if asked.HasField("pids") else None,
    )


def time_of(field: str, duration: Duration) -> timedelta:
    """A length of time that can be asked for; InvalidArgument."""
    seconds = seconds_of(field, duration)
    # What the database stores, to the microsecond.
    check_range(field, seconds, 1e-3, _LONGEST_TTL)
    return timedelta(seconds=seconds)


def _duration(time: timedelta | None) -> Duration | None:
    if time is None:
        return None
    duration = Duration()
    duration.FromTimedelta(time)
    return duration
