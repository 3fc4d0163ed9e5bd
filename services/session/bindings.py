"""Bindings: what is stored about where a session's tools run, and reading it back (T10).

A stored binding of a kind that this build does not know, or that cannot be read, is
refused; it never becomes another kind.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import DecodeError
from moorage.common.v1 import binding_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import FailedPrecondition


class Origin(enum.StrEnum):
    """Who made what a binding points at."""

    PROVISIONED = "PROVISIONED"
    SUPPLIED = "SUPPLIED"


@dataclass(frozen=True, slots=True)
class LocalBinding:
    """A directory of a workspace instance, as an absolute path."""

    origin: Origin
    directory: str

    kind = "local"


@dataclass(frozen=True, slots=True)
class CloudBinding:
    """A workspace made by a cloud provider."""

    origin: Origin
    provider: str
    workspace_ref: str | None

    kind = "cloud"


@dataclass(frozen=True, slots=True)
class ExternalBinding:
    """A pool of workers that dial in."""

    origin: Origin
    worker_pool: str
    executor_kind: str
    workspace_ref: str | None

    kind = "external"


Binding: TypeAlias = LocalBinding | CloudBinding | ExternalBinding


class BindingUnresolved(FailedPrecondition):
    """{field}: the binding of kind {kind} cannot be resolved: {cause}"""

    reason = ErrorReason.ERROR_REASON_BINDING_UNRESOLVED


def is_provisioned(kind: str, stored: bytes) -> bool:
    """Whether a stored binding points at what was made for its session; False when it cannot be read."""
    try:
        return load(kind, stored).origin is Origin.PROVISIONED
    except BindingUnresolved:
        return False


def load(kind: str, stored: bytes) -> Binding:
    """A stored binding; `kind` is what its row says. Raises BindingUnresolved."""
    try:
        found = binding_pb2.Binding.FromString(stored)
    except DecodeError as error:
        raise unresolved(kind, "it cannot be read") from error
    if kind not in _KINDS:
        raise unresolved(kind, "this version does not know the kind")
    if found.WhichOneof("kind") != kind:
        raise unresolved(kind, "what is stored is not of this kind")
    return from_message(found)


def from_message(given: binding_pb2.Binding) -> Binding:
    """A binding as another service names it. Raises BindingUnresolved without a known kind."""
    origin = _origin(given.origin)
    match given.WhichOneof("kind"):
        case "local":
            return LocalBinding(origin, given.local.directory)
        case "cloud":
            cloud = given.cloud
            ref = cloud.workspace_ref if cloud.HasField("workspace_ref") else None
            return CloudBinding(origin, cloud.provider, ref)
        case "external":
            external = given.external
            ref = external.workspace_ref if external.HasField("workspace_ref") else None
            return ExternalBinding(origin, external.worker_pool, external.executor_kind, ref)
        case _:
            raise unresolved("", "it names no kind that this version knows")


def message(binding: Binding) -> binding_pb2.Binding:
    """The binding as it is stored and sent."""
    origin = binding_pb2.BindingOrigin.Value(f"BINDING_ORIGIN_{binding.origin}")
    match binding:
        case LocalBinding():
            local = binding_pb2.LocalBinding(directory=binding.directory)
            return binding_pb2.Binding(origin=origin, local=local)
        case CloudBinding():
            cloud = binding_pb2.CloudBinding(provider=binding.provider, workspace_ref=binding.workspace_ref)
            return binding_pb2.Binding(origin=origin, cloud=cloud)
        case ExternalBinding():
            external = binding_pb2.ExternalBinding(
                worker_pool=binding.worker_pool,
                executor_kind=binding.executor_kind,
                workspace_ref=binding.workspace_ref,
            )
            return binding_pb2.Binding(origin=origin, external=external)


def unresolved(kind: str, cause: str) -> BindingUnresolved:
    """The refusal; `field` names the request's field that is at fault."""
    return BindingUnresolved(field="binding", kind=kind or "unknown", cause=cause)


_KINDS = frozenset({LocalBinding.kind, CloudBinding.kind, ExternalBinding.kind})


def _origin(value: binding_pb2.BindingOrigin.ValueType) -> Origin:
    if value == binding_pb2.BINDING_ORIGIN_PROVISIONED:
        return Origin.PROVISIONED
    return Origin.SUPPLIED
