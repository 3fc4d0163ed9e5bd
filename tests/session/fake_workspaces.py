"""Workspace services that do as a test says, on real gRPC servers, and record what they were shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from moorage.workspace.v1 import workspace_pb2

from services.fencing.grants import decode

Context = grpc.aio.ServicerContext[Any, Any]


class FakeWorkspace:
    """Raises each fence that it is asked for, unless it is `out_of_order` or `hangs`, or of one that is `dead`.

    `claims` has workspace, token and the execs to keep of each ClaimWorkspace, `raised` those
    that it raised a fence for.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.out_of_order = False
        self.hangs = False
        self.dead: set[str] = set()
        self.claims: list[tuple[str, int, str]] = []
        self.raised: list[str] = []

    async def claim(
        self, request: workspace_pb2.ClaimWorkspaceRequest, context: Context
    ) -> workspace_pb2.ClaimWorkspaceResponse:
        self.claims.append((request.workspace_id, decode(request.grant.payload).token, request.keep_exec_id))
        if self.hangs or request.workspace_id in self.dead:
            await asyncio.Event().wait()
        if self.out_of_order:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "out of order")
        self.raised.append(request.workspace_id)
        return workspace_pb2.ClaimWorkspaceResponse()


@contextlib.asynccontextmanager
async def fake_workspace() -> AsyncIterator[FakeWorkspace]:
    """A workspace service on a free port."""
    workspace, server = FakeWorkspace(), grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(
        workspace.claim,
        request_deserializer=workspace_pb2.ClaimWorkspaceRequest.FromString,
        response_serializer=workspace_pb2.ClaimWorkspaceResponse.SerializeToString,
    )
    service = workspace_pb2.DESCRIPTOR.services_by_name["WorkspaceService"].full_name
    handler = grpc.method_handlers_generic_handler(service, {"ClaimWorkspace": method})
    server.add_generic_rpc_handlers((handler,))
    workspace.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield workspace
    finally:
        await server.stop(0)
