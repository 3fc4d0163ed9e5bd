"""Calls about files, and what a test wants to know of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from moorage.common.v1.grant_pb2 import Grant
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import MoorageError
from tests.workspace.instances import PATIENCE, PROJECT, Client, told


class Files:
    """The files of one workspace."""

    def __init__(self, client: Client, grant: Grant | None = None, workspace_id: str = "w1") -> None:
        self.client = client
        self.grant = grant
        self.workspace_id = workspace_id

    async def part(self, path: str, **part: int) -> workspace_pb2.ReadFileResponse:
        request = workspace_pb2.ReadFileRequest(
            project=PROJECT, workspace_id=self.workspace_id, path=path, **part
        )
        return await told(self.client.stub.ReadFile(request, timeout=PATIENCE))

    async def read(self, path: str) -> bytes:
        return (await self.part(path)).data

    async def write(self, path: str, data: bytes, grant: Grant | None = None) -> int:
        request = workspace_pb2.WriteFileRequest(
            grant=grant or self.grant, project=PROJECT, workspace_id=self.workspace_id, path=path, data=data
        )
        return (await told(self.client.stub.WriteFile(request, timeout=PATIENCE))).size

    async def page(self, path: str = "", **page: Any) -> workspace_pb2.ListDirectoryResponse:
        request = workspace_pb2.ListDirectoryRequest(
            project=PROJECT, workspace_id=self.workspace_id, path=path, **page
        )
        return await told(self.client.stub.ListDirectory(request, timeout=PATIENCE))

    async def pages(self, path: str, page_size: int) -> AsyncIterator[workspace_pb2.ListDirectoryResponse]:
        """All of them."""
        token = ""
        while True:
            page = await self.page(path, page_size=page_size, page_token=token)
            yield page
            if not (token := page.next_page_token):
                return

    async def names(self, path: str = "") -> list[str]:
        return [entry.name for entry in (await self.page(path)).entries]


async def refused(call: Awaitable[object]) -> MoorageError:
    """Why a call is refused."""
    with pytest.raises(MoorageError) as caught:
        await call
    return caught.value


async def reason(call: Awaitable[object]) -> str:
    return (await refused(call)).reason_name
