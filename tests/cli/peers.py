"""Services as this machine's installation may not be: real servers whose answers a test chooses, and which remember calls."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from moorage.session.v1 import session_pb2
from moorage.workspace.v1 import workspace_pb2

SESSION = "moorage.session.v1.SessionService"
WORKSPACE = "moorage.workspace.v1.WorkspaceService"
_CONTRACTS = {SESSION: session_pb2, WORKSPACE: workspace_pb2}

Answer = Callable[[Any], Message]


@dataclass
class Peer:
    """A server, and what it was asked."""

    address: str
    calls: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def serving(service: str, answers: Mapping[str, Answer]) -> AsyncIterator[Peer]:
    """Such a service for the block, with these methods and no others."""
    server = grpc.aio.server()
    peer = Peer(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    methods = {name: _handler(peer, _CONTRACTS[service], name, answer) for name, answer in answers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    await server.start()
    try:
        yield peer
    finally:
        await server.stop(0)


def one_after_the_other(*answers: Message) -> Answer:
    """These, and then the last one for ever."""
    left: Iterator[Message] = iter(answers)
    return lambda _: next(left, answers[-1])


def _handler(peer: Peer, contract: Any, name: str, answer: Answer) -> Any:
    async def call(request: Any, _: object) -> Message:
        peer.calls.append(name)
        return answer(request)

    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=getattr(contract, f"{name}Request").FromString,
        response_serializer=getattr(contract, f"{name}Response").SerializeToString,
    )
