"""Refusals as people and programs see them."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc.aio import AioRpcError, Metadata
from moorage.common.v1.errors_pb2 import ErrorReason

from services.cli.exits import Exit
from services.cli.refusals import Refusal
from services.common.errors import FieldViolation, InvalidArgument, MoorageError, NotFound, ShuttingDown
from services.common.status import DETAILS_KEY, code_of, to_rpc_status
from services.workspace.workspaces import ProviderUnavailable


def received(error: MoorageError) -> AioRpcError:
    """The error as a client gets it."""
    status = to_rpc_status(error)
    trailers = Metadata((DETAILS_KEY, status.SerializeToString()))
    return AioRpcError(code_of(error), Metadata(), trailers, status.message)


def test_a_field_is_told_once() -> None:
    refusal = Refusal(received(InvalidArgument.of("session_id", "must not be empty")))
    assert refusal.line() == "session_id: must not be empty (INVALID_ARGUMENT, INVALID_FIELD)"
    assert refusal.exit == Exit.USAGE


def test_every_further_field_is_told() -> None:
    violations = (
        FieldViolation("a", "is bad"),
        FieldViolation("bee", "is worse"),
        FieldViolation("c", "too"),
    )
    error = InvalidArgument(violations=violations, field="a", description="is bad")
    assert Refusal(received(error)).line() == (
        "a: is bad; bee: is worse; c: too (INVALID_ARGUMENT, INVALID_FIELD)"
    )


def test_a_document_says_everything() -> None:
    refusal = Refusal(received(InvalidArgument.of("session_id", "must not be empty")))
    assert refusal.document() == {
        "code": "INVALID_ARGUMENT",
        "reason": "INVALID_FIELD",
        "message": "session_id: must not be empty",
        "metadata": {"field": "session_id", "description": "must not be empty"},
        "violations": [{"field": "session_id", "description": "must not be empty"}],
    }


@pytest.mark.parametrize(
    ("error", "code"), [(ShuttingDown(), Exit.CUT), (NotFound(description="nothing there"), Exit.FAILED)]
)
def test_the_code_becomes_an_exit_code(error: MoorageError, code: Exit) -> None:
    assert Refusal(received(error)).exit == code


OUTSIDE = InvalidArgument.of(
    "binding.local.directory", "/a lies outside /b", reason=ErrorReason.ERROR_REASON_PATH_OUTSIDE_ROOT
)
NO_SOURCE = InvalidArgument.of("provision.source.path.directory", "no directory can be a source")
SWITCHED_OFF = InvalidArgument.of(
    "binding.local.directory", "provider local is switched off on this instance"
)
NOTHING = InvalidArgument.of("source", "nothing", reason=ErrorReason.ERROR_REASON_BINDING_REQUIRED)


@pytest.mark.parametrize(
    ("error", "near", "far"),
    [
        (OUTSIDE, "`moorage up`", "`run --docker --empty`"),
        (NO_SOURCE, "", "`run --docker --empty` or `session create --docker`"),
        (SWITCHED_OFF, "", "`run --docker --empty`"),
        (NOTHING, "", "`--docker`"),
        (
            ProviderUnavailable(provider="docker", cause="x"),
            "`moorage up --docker-image",
            "workspace providers",
        ),
        (
            ProviderUnavailable(provider="local", cause="x"),
            "workspace providers",
            "`--docker` asks for a container",
        ),
    ],
)
def test_services_elsewhere_get_hints_of_their_own(error: MoorageError, near: str, far: str) -> None:
    here, elsewhere = Refusal(received(error)), Refusal(received(error), "host:7801")
    assert near in here.hint
    assert bool(here.hint) is bool(near)
    assert far in elsewhere.hint
    assert "host:7801" in elsewhere.hint
    assert "moorage up" not in elsewhere.hint


def test_what_the_service_did_not_say_has_no_reason() -> None:
    lost = Refusal(AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "Socket closed"))
    assert lost.line() == "Socket closed (UNAVAILABLE)"
    away = "connections to all backends failing; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect"
    nobody = Refusal(AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), away))
    assert (nobody.line(), nobody.exit) == ("nothing answers at 127.0.0.1:1 (UNAVAILABLE)", Exit.CUT)
    silent = Refusal(AioRpcError(grpc.StatusCode.UNKNOWN, Metadata(), Metadata(), ""))
    assert silent.line() == "the call failed (UNKNOWN)"
    info = error_details_pb2.ErrorInfo(reason="NEWER_THAN_US", domain="moorage")
    status = to_rpc_status(NotFound(description="gone"))
    status.details.add().Pack(info)
    newer = AioRpcError(
        grpc.StatusCode.NOT_FOUND, Metadata(), Metadata((DETAILS_KEY, status.SerializeToString())), "gone"
    )
    assert Refusal(newer).line() == "gone (NOT_FOUND, NEWER_THAN_US)"
