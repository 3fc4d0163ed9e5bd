"""Stored bindings (T10): read back as they were, and never as another kind."""

from __future__ import annotations

import pytest
from moorage.common.v1 import binding_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.session import bindings
from services.session.bindings import (
    Binding,
    BindingUnresolved,
    CloudBinding,
    ExternalBinding,
    LocalBinding,
    Origin,
)

BINDINGS: list[Binding] = [
    LocalBinding(Origin.SUPPLIED, "/srv/app"),
    LocalBinding(Origin.PROVISIONED, "/var/lib/moorage/ws_1"),
    CloudBinding(Origin.PROVISIONED, "e2b", None),
    CloudBinding(Origin.SUPPLIED, "e2b", ""),
    CloudBinding(Origin.SUPPLIED, "e2b", "sandbox-7"),
    ExternalBinding(Origin.SUPPLIED, "laptops", "process", None),
    ExternalBinding(Origin.SUPPLIED, "laptops", "process", "checkout-3"),
]
LOCAL = bindings.message(BINDINGS[0]).SerializeToString()
# A oneof member with a number that this build does not know.
NEWER = binding_pb2.Binding(origin=binding_pb2.BINDING_ORIGIN_SUPPLIED).SerializeToString() + b"\xfa\x01\x00"


@pytest.mark.parametrize("binding", BINDINGS, ids=repr)
def test_a_stored_binding_is_read_back_as_it_was(binding: Binding) -> None:
    assert bindings.load(binding.kind, bindings.message(binding).SerializeToString()) == binding


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        pytest.param("orbital", NEWER, id="a kind of a newer version"),
        pytest.param("orbital", LOCAL, id="an unknown kind over a local binding"),
        pytest.param("cloud", LOCAL, id="another kind than the row says"),
        pytest.param("local", NEWER, id="a local row without a local binding"),
        pytest.param("local", b"\xff\xff\xff", id="not a message"),
        pytest.param("", b"", id="nothing"),
    ],
)
def test_what_cannot_be_resolved_is_refused(kind: str, stored: bytes) -> None:
    with pytest.raises(BindingUnresolved) as refusal:
        bindings.load(kind, stored)
    assert refusal.value.reason == ErrorReason.ERROR_REASON_BINDING_UNRESOLVED
    assert refusal.value.metadata["field"] == "binding"
    assert refusal.value.metadata["kind"] == (kind or "unknown")
