"""Placement and run metadata (T9), for every kind of binding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import binding_pb2, turn_pb2
from moorage.session.v1 import journal_pb2

from services.session.bindings import (
    Binding,
    BindingUnresolved,
    CloudBinding,
    ExternalBinding,
    LocalBinding,
    Origin,
)
from services.session.limits import LimitDefaults
from services.session.metadata import placement_of, run_metadata
from tests.session import samples

DEFAULTS = LimitDefaults(max_duration=3600, max_silence=60)
OBSERVATION = journal_pb2.RunObservation(
    provider="anthropic",
    model="a-model",
    agent="demo 1.0",
    workspace_provider="docker",
    resume_kind=turn_pb2.RESUME_KIND_FRESH,
    resume_reason="the first turn",
)
COMMON = turn_pb2.RunMetadata(
    profile="demo",
    provider="anthropic",
    model="a-model",
    agent="demo 1.0",
    approval_policy=turn_pb2.APPROVAL_POLICY_ALLOW,
    limits=turn_pb2.Limits(
        max_duration=Duration(seconds=3600), max_silence=Duration(seconds=60), max_tool_calls=7
    ),
    resume_kind=turn_pb2.RESUME_KIND_FRESH,
    resume_reason="the first turn",
    previous_turn_id="t1",
    runner_id="runner/1",
    token=42,
    trace_id="0af7651916cd43dd8448eb211c80319c",
)
TABLE: list[tuple[str, Binding, turn_pb2.RunMetadata]] = [
    (
        "local",
        LocalBinding(Origin.PROVISIONED, "/srv/app"),
        turn_pb2.RunMetadata(
            binding_kind="local",
            placement=binding_pb2.PLACEMENT_SERVER_EMBEDDED,
            workspace_provider="docker",
        ),
    ),
    (
        "cloud with workspace_ref",
        CloudBinding(Origin.SUPPLIED, "e2b", "sandbox-7"),
        turn_pb2.RunMetadata(
            binding_kind="cloud",
            placement=binding_pb2.PLACEMENT_CLOUD_WORKSPACE,
            workspace_provider="docker",
            workspace_ref="sandbox-7",
        ),
    ),
    (
        "cloud without workspace_ref",
        CloudBinding(Origin.PROVISIONED, "e2b", None),
        turn_pb2.RunMetadata(
            binding_kind="cloud",
            placement=binding_pb2.PLACEMENT_CLOUD_WORKSPACE,
            workspace_provider="docker",
        ),
    ),
    (
        "external with workspace_ref",
        ExternalBinding(Origin.SUPPLIED, "laptops", "process", "checkout-3"),
        turn_pb2.RunMetadata(
            binding_kind="external",
            placement=binding_pb2.PLACEMENT_LOCAL_ATTACHED,
            executor_kind="process",
            worker_pool="laptops",
            workspace_ref="checkout-3",
        ),
    ),
    (
        "external without workspace_ref",
        ExternalBinding(Origin.SUPPLIED, "laptops", "process", None),
        turn_pb2.RunMetadata(
            binding_kind="external",
            placement=binding_pb2.PLACEMENT_LOCAL_ATTACHED,
            executor_kind="process",
            worker_pool="laptops",
        ),
    ),
]


@pytest.mark.parametrize(("binding", "own"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_run_metadata_of_every_kind_of_binding(binding: Binding, own: turn_pb2.RunMetadata) -> None:
    expected = turn_pb2.RunMetadata()
    expected.CopyFrom(COMMON)
    expected.MergeFrom(own)
    metadata = run_metadata(samples.session(binding), samples.turn(), OBSERVATION, DEFAULTS)
    assert metadata == expected
    assert metadata.HasField("workspace_ref") == own.HasField("workspace_ref")


def test_a_cloud_provider_is_known_before_the_runner_tells_it() -> None:
    session = samples.session(CloudBinding(Origin.SUPPLIED, "e2b", None))
    metadata = run_metadata(session, samples.turn(), journal_pb2.RunObservation(), DEFAULTS)
    assert metadata.workspace_provider == "e2b"


def test_a_first_turn_without_trace_tells_neither() -> None:
    turn = samples.turn(previous_turn_id="", traceparent="", runner_id=None, token=None)
    metadata = run_metadata(samples.session(), turn, OBSERVATION, DEFAULTS)
    assert (metadata.previous_turn_id, metadata.trace_id) == ("", "")
    assert (metadata.runner_id, metadata.token) == ("", 0)


def test_limits_that_were_asked_for_win_over_defaults() -> None:
    asked = turn_pb2.Limits(max_duration=Duration(seconds=5))
    session = replace(samples.session(), limits=asked.SerializeToString())
    limits = run_metadata(session, samples.turn(), OBSERVATION, DEFAULTS).limits
    assert (limits.max_duration.seconds, limits.max_silence.seconds, limits.max_tool_calls) == (5, 60, 0)


def test_an_unknown_kind_has_no_placement_and_no_metadata() -> None:
    assert placement_of("orbital") == binding_pb2.PLACEMENT_UNSPECIFIED
    session = replace(samples.session(), binding_kind="orbital")
    with pytest.raises(BindingUnresolved, match="orbital"):
        run_metadata(session, samples.turn(), OBSERVATION, DEFAULTS)
