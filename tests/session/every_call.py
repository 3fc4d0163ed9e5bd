"""A well-formed request for every RPC that names a session, derived from the contracts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message_factory import GetMessageClass
from moorage.common.v1 import record_pb2, turn_pb2
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common.status import from_rpc_error
from tests.session.clients import PATIENCE, text
from tests.session.desks import question

# Of whatever fields have these names; all others may be left out.
_VALUES: dict[str, Any] = {
    "turn_id": "t1",
    "attempt_id": "a1",
    "before_turn_id": "t1",
    "prompt": [text("hello")],
    "command_id": "c1",
    "interaction_id": "q1",
    "option_id": "yes",
    "standing_answer_id": "sa1",
    "update_mask": FieldMask(paths=["labels"]),
    "project": "default",
    "turn_seq": 1,
    "phase": turn_pb2.TURN_PHASE_STARTING_AGENT,
    "state": turn_pb2.TURN_STATE_COMPLETED,
    "end_reason": turn_pb2.END_REASON_AGENT_ENDED,
    "body": record_pb2.RecordBody(agent_message=record_pb2.AgentMessage()),
    "interaction": question("q1"),
}


def session_calls(
    service: ServiceDescriptor, session_id: str, **values: Any
) -> Iterator[tuple[MethodDescriptor, Any]]:
    """Each RPC about a session, as its request or the items in it say, but CreateSession, which makes one."""
    for method in service.methods:
        request = GetMessageClass(method.input_type)()
        if method.name != "CreateSession" and _fill(request, {"session_id": session_id, **_VALUES, **values}):
            yield method, request


def _fill(request: Any, values: dict[str, Any]) -> bool:
    """Whether it names a session now."""
    fields = request.DESCRIPTOR.fields_by_name
    if "appends" in fields:
        return _fill(request.appends.add(), values)
    request.MergeFrom(type(request)(**{name: value for name, value in values.items() if name in fields}))
    return "session_id" in fields


async def refusal(channel: grpc.aio.Channel, method: MethodDescriptor, request: Any) -> str:
    """The reason why a call, or the only item of it, is refused; empty when it is not."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    codecs: dict[str, Any] = {
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    try:
        if method.client_streaming:
            stream: Any = channel.stream_stream(path, **codecs)(timeout=PATIENCE)
            await stream.write(request)
            [result] = (await stream.read()).results
            stream.cancel()
            return ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if method.server_streaming:
            watch: Any = channel.unary_stream(path, **codecs)(request, timeout=PATIENCE)
            async for _ in watch:
                watch.cancel()
                return ""
        else:
            call: Any = channel.unary_unary(path, **codecs)
            await call(request, timeout=PATIENCE)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason_name
    return ""
