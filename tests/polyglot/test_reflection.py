"""What reflection shows is what there is: nothing of it is unimplemented, and all of it can be described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

pytestmark = pytest.mark.timeout(120)

PUBLISHED = {
    "owner": {"moorage.owner.v1.LeaseService"},
    "session": {"moorage.session.v1.SessionService"},
    "journal": {"moorage.session.v1.JournalService"},
    "workspace": {"moorage.workspace.v1.WorkspaceService"},
    "runner": {"moorage.runner.v1.RunnerService"},
}
EVERYWHERE = {
    "grpc.channelz.v1.Channelz",
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
}
# A stream that has said nothing by then is implemented.
PATIENCE = 1.0


@pytest.fixture(params=list(PUBLISHED))
def listener(request: pytest.FixtureRequest) -> str:
    """One of the addresses that the services listen on."""
    name: str = request.param
    return name


@pytest.fixture
def channel(addresses: Mapping[str, str], listener: str) -> Iterator[grpc.Channel]:
    """A channel to it."""
    with grpc.insecure_channel(addresses[listener]) as channel:
        yield channel


@pytest.fixture
def methods(channel: grpc.Channel) -> list[MethodDescriptor]:
    """Every method of every service that reflection shows there."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    return [method for name in database.get_services() for method in pool.FindServiceByName(name).methods]


def test_each_address_shows_its_own_services(methods: list[MethodDescriptor], listener: str) -> None:
    shown = {method.containing_service.full_name for method in methods}
    assert shown == PUBLISHED[listener] | EVERYWHERE


def test_nothing_shown_is_unimplemented(channel: grpc.Channel, methods: list[MethodDescriptor]) -> None:
    codes = {method.full_name: code_of_empty_call(channel, method) for method in methods}
    assert [name for name, code in codes.items() if code is grpc.StatusCode.UNIMPLEMENTED] == []
    faults = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert [name for name, code in codes.items() if code in faults and name.startswith("moorage")] == []


def test_a_method_that_is_not_shown_is_unimplemented(channel: grpc.Channel) -> None:
    """The check above would see one."""
    call: Any = channel.unary_unary("/moorage.session.v1.SessionService/Nothing")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_every_method_can_be_asked_for_by_its_name(
    channel: grpc.Channel, methods: list[MethodDescriptor]
) -> None:
    asked = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=method.full_name) for method in methods
    ]
    unknown = reflection_pb2.ServerReflectionRequest(file_containing_symbol="moorage.Nothing.AtAll")
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    *answers, refused = stub.ServerReflectionInfo(iter([*asked, unknown]))
    assert all(answer.HasField("file_descriptor_response") for answer in answers)
    assert refused.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def code_of_empty_call(channel: grpc.Channel, method: MethodDescriptor) -> grpc.StatusCode:
    """How a call with one empty message ends; OK when it answers or goes on."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request: Any = iter([b""]) if method.client_streaming else b""
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    make: Any = getattr(channel, kind)(path)
    try:
        answer = make(request, timeout=PATIENCE)
        if method.server_streaming:
            next(answer, None)
            answer.cancel()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK
