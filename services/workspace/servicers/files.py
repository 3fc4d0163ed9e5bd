"""Files of a workspace: unpack, call, pack."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.common.failpoints import failpoint
from services.common.logs import bind
from services.common.pages import PageToken, page_size
from services.common.validation import check_present, check_range, check_size, check_text
from services.workspace.fence import Fence
from services.workspace.files import MAX_BYTES, MAX_PATH, Entry
from services.workspace.instance import Instance
from services.workspace.providers.files import Tree
from services.workspace.resolving import Resolver
from services.workspace.workspaces import Workspace
from services.workspace.writes import Writes

_LARGEST_OFFSET: Final = 2**62
_NANOSECONDS: Final = 10**9
# A Timestamp says the years 1 to 9999; a file's time can be anything.
_EARLIEST: Final = -62_135_596_800
_LATEST: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class FileCalls:
    """Reads of workspaces that this instance carries, and fenced writes."""

    instance: Instance
    fence: Fence
    resolver: Resolver
    writes: Writes

    async def read(
        self, request: workspace_pb2.ReadFileRequest, carried: Workspace
    ) -> workspace_pb2.ReadFileResponse:
        """A part of a file."""
        path = _check_path(check_present("path", request.path))
        check_range("offset", request.offset, 0, _LARGEST_OFFSET)
        limit = page_size("limit", request.limit, default=MAX_BYTES, maximum=MAX_BYTES)
        self.instance.require()
        part = await self.resolver.use(carried, lambda tree: tree.read(path, request.offset, limit))
        return workspace_pb2.ReadFileResponse(data=part.data, size=part.size)

    async def write(self, request: workspace_pb2.WriteFileRequest) -> workspace_pb2.WriteFileResponse:
        """A whole file, by the session's holder only; its token is judged before anything is touched."""
        path = _check_path(check_present("path", request.path))
        check_size("data", request.data, MAX_BYTES)
        self.instance.require()
        shown = await self.fence.examine(request.project, request.workspace_id, request.grant)
        bind(project=shown.session.project, session=shown.session.session_id)
        with self.writes.begun(shown.session, shown.claims.token) as write:
            workspace = await self.fence.write_down(shown)
            await failpoint("workspace.write_file.after_fence")
            replace = partial(Tree.replace, path=path, data=request.data, go_ahead=self.instance.require)
            await self.resolver.use(workspace, replace, partial(self.writes.run, write))
        return workspace_pb2.WriteFileResponse(size=len(request.data))

    async def entries(
        self, request: workspace_pb2.ListDirectoryRequest, carried: Workspace
    ) -> workspace_pb2.ListDirectoryResponse:
        """A page of a directory's entries, as it is now."""
        path = _check_path(check_text("path", request.path)) or "."
        size = page_size("page_size", request.page_size)
        listing = _listing(carried, path)
        token = PageToken.decode(request.page_token, listing)
        after = _name_of(token)
        self.instance.require()
        found = await self.resolver.use(carried, lambda tree: tree.entries(path, after, size))
        response = workspace_pb2.ListDirectoryResponse(entries=map(_message, found.entries))
        if found.more_after:
            response.next_page_token = PageToken(listing, (found.more_after.hex(),)).encode()
        return response


def _check_path(path: str) -> str:
    check_size("path", path, MAX_PATH)
    return path


def _listing(workspace: Workspace, path: str) -> str:
    """A path can be longer than a token may be."""
    digest = hashlib.sha256(path.encode()).hexdigest()
    return f"ListDirectory {workspace.project} {workspace.workspace_id} {digest}"


def _name_of(token: PageToken | None) -> bytes:
    """Names need not be text, so tokens carry them in hexadecimal."""
    if token is None:
        return b""
    try:
        return bytes.fromhex(str(token.key[0]))
    except ValueError:
        raise InvalidArgument.of("page_token", "is not a token that this listing gave") from None


def _message(entry: Entry) -> workspace_pb2.DirectoryEntry:
    seconds, nanos = divmod(entry.modified, _NANOSECONDS)
    return workspace_pb2.DirectoryEntry(
        name=entry.name.decode(errors="replace"),
        type=workspace_pb2.FileType.Value(f"FILE_TYPE_{entry.type}"),
        size=entry.size,
        modify_time=Timestamp(seconds=min(max(seconds, _EARLIEST), _LATEST), nanos=nanos),
    )
