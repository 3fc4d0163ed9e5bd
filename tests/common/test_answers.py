"""What a caller sees of an error, in every kind of call, over a real connection."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import error_details_pb2, status_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.errors import Cancelled, FailedPrecondition, Internal, InvalidArgument, Unavailable
from services.common.serving import ServiceServer
from services.common.status import DETAILS_KEY, from_rpc_error
from tests.common.conftest import Logs
from tests.common.echo import Caller, Echo
from tests.conditions import eventually

KINDS = ["Unary", "Download", "DownloadByWriting", "Upload", "Chat"]


async def failure(caller: Caller, method: str, action: str | bytes, **options: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call(method, action, timeout=10, **options)
    return caught.value


def details_of(error: grpc.aio.AioRpcError) -> list[Any]:
    raw = next(value for key, value in error.trailing_metadata() if key == DETAILS_KEY)
    assert isinstance(raw, bytes)
    unpacked = []
    for packed in status_pb2.Status.FromString(raw).details:
        message = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])()
        packed.Unpack(message)
        unpacked.append(message)
    return unpacked


@pytest.mark.parametrize("method", KINDS)
async def test_good_calls_pass(caller: Caller, method: str) -> None:
    assert (await caller.call(method, "ok")).endswith("ok")


@pytest.mark.parametrize("method", KINDS)
async def test_an_error_has_its_code_its_text_and_its_details(caller: Caller, method: str) -> None:
    error = await failure(caller, method, "refuse")
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == "door front is locked by runner-1/ab"
    info, retry = details_of(error)
    assert (info.domain, info.reason) == ("moorage", "LEASE_HELD")
    assert dict(info.metadata) == {"door": "front", "holder": "runner-1/ab"}
    assert retry.retry_delay.ToTimedelta().total_seconds() == 2.5


async def test_an_error_comes_back_as_the_kind_it_was(caller: Caller) -> None:
    error = from_rpc_error(await failure(caller, "Unary", "refuse"))
    assert type(error) is FailedPrecondition
    assert error.reason == ErrorReason.ERROR_REASON_LEASE_HELD
    assert error.metadata["door"] == "front"
    assert error.retry_after == 2.5


async def test_a_bad_field_is_named(caller: Caller) -> None:
    error = await failure(caller, "Unary", "reject")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    info, request = details_of(error)
    assert info.reason == "INVALID_FIELD"
    assert [(v.field, v.description) for v in request.field_violations] == [("prompt", "must not be empty")]
    back = from_rpc_error(error)
    assert isinstance(back, InvalidArgument)
    assert back.violations[0].field == "prompt"


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize(
    "request_bytes", [b"\xff\xff\xff", b"\x0a\x03\xed\xa0\x80"], ids=["garbage", "no UTF-8"]
)
async def test_a_request_that_cannot_be_read_is_the_callers_fault(
    caller: Caller, method: str, request_bytes: bytes, logs: Logs
) -> None:
    error = await failure(caller, method, request_bytes)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    _info, request = details_of(error)
    assert [violation.field for violation in request.field_violations] == ["request"]
    assert "Traceback" not in logs.text


@pytest.mark.parametrize("method", KINDS)
async def test_an_unexpected_error_tells_only_an_id_that_is_in_the_log(
    caller: Caller, method: str, logs: Logs
) -> None:
    error = await failure(caller, method, "crash")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "4711" not in repr(error)
    told = from_rpc_error(error)
    assert isinstance(told, Internal)
    assert told.metadata["error_id"] in str(error.details())
    [logged] = logs.lines("unexpected error")
    assert logged["error_id"] == told.metadata["error_id"]
    assert "the secret is 4711" in logged["exception"]
    assert re.search(r"line \d+, in _crash", logged["exception"])


async def test_a_refusal_that_a_write_meets_is_no_internal_error(caller: Caller) -> None:
    async def refused() -> grpc.aio.AioRpcError:
        call = caller.start("Chat")(timeout=10)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            while True:
                await call.write(StringValue(value="refuse"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        return caught.value

    errors = [await refused() for _ in range(100)]
    kinds = {(error.code(), type(from_rpc_error(error))) for error in errors}
    assert kinds <= {
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
        (grpc.StatusCode.INTERNAL, Unavailable),
    }
    assert (grpc.StatusCode.INTERNAL, Unavailable) in kinds, "gRPC has got better: from_rpc_error can, too"


async def test_the_error_of_a_task_group_is_the_error_of_the_call(caller: Caller) -> None:
    error = await failure(caller, "Unary", "refuse_in_group")
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_trailers_of_the_handler_are_kept(caller: Caller) -> None:
    error = await failure(caller, "Unary", "refuse_with_trailers")
    trailers = dict(error.trailing_metadata())
    assert trailers["moorage-hint"] == "look at the door"
    assert from_rpc_error(error).reason_name == "LEASE_HELD"


async def test_a_status_set_by_the_handler_itself_stays(caller: Caller) -> None:
    error = await failure(caller, "Unary", "abort")
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAUTHENTICATED, "who are you?")


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("action", ["cancel", "cancel_task"])
async def test_a_cancellation_inside_a_live_handler_is_answered(
    caller: Caller, method: str, action: str
) -> None:
    error = await failure(caller, method, action)
    assert error.code() is grpc.StatusCode.CANCELLED
    assert type(from_rpc_error(error)) is Cancelled
    assert from_rpc_error(error).reason_name == "CANCELLED"


@pytest.mark.parametrize("method", KINDS)
async def test_a_caller_that_goes_away_cancels_the_handler(
    caller: Caller, echo: Echo, method: str, logs: Logs
) -> None:
    calling = asyncio.create_task(caller.call(method, "hang"))
    await echo.entered.wait()
    calling.cancel()
    await eventually(lambda: echo.cut == ["hang"])
    assert await caller.call(method, "ok") != ""
    assert "Traceback" not in logs.text


@pytest.mark.parametrize("method", KINDS)
async def test_a_deadline_ends_the_call_on_both_sides(caller: Caller, echo: Echo, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.call(method, "hang", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: echo.cut == ["hang"])


async def test_a_generator_is_closed_in_the_task_of_its_call(caller: Caller, echo: Echo) -> None:
    call = caller.start("Pour")(StringValue())
    await call.read()
    await echo.entered.wait()
    call.cancel()
    await eventually(lambda: len(echo.cut) == 1)
    assert re.fullmatch(r"closed in .*/Pour\]", echo.cut[0])


async def test_calls_in_progress_at_shutdown_are_told_so(
    server: ServiceServer, caller: Caller, echo: Echo
) -> None:
    calling = asyncio.create_task(failure(caller, "Unary", "hang"))
    await echo.entered.wait()
    await server.stop()
    assert (await calling).code() is grpc.StatusCode.UNAVAILABLE
    assert echo.cut == ["hang"]


async def test_a_handler_that_outlives_the_server_is_no_unexpected_error(
    server: ServiceServer, caller: Caller, echo: Echo, logs: Logs
) -> None:
    call = caller.start("Linger")(StringValue())
    await call.read()
    await server.stop()
    echo.released.set()
    await echo.ended.wait()
    await eventually(lambda: bool(logs.lines("call")))
    assert [line["reason"] for line in logs.lines("call")] == ["SHUTTING_DOWN"]
    assert not logs.lines("unexpected error")
