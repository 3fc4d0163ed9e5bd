"""Text files of a workspace, read and written for its agent (T6, W7)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from moorage.common.v1.errors_pb2 import ErrorReason
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument, MoorageError
from services.fencing.leases import HeldLease
from services.runner.acp.errors import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from services.runner.acp.library import schema
from services.runner.acp.lines import Message
from services.runner.acp.rpc import RequestError
from services.runner.clients.workspaces import Workspaces
from services.runner.places import Place

# What one message to a workspace can hold.
MAX_WRITE_BYTES: Final = 1024 * 1024
MAX_READ_BYTES: Final = 4 * 1024 * 1024

_THEIRS: Final = frozenset((ErrorReason.ERROR_REASON_NOT_A_FILE, ErrorReason.ERROR_REASON_NOT_A_DIRECTORY))


class Files:
    """The files of one place. Raises RequestError and the kinds of `errors`."""

    def __init__(self, workspaces: Workspaces, place: Place, lease: HeldLease) -> None:
        """Writes show the newest grant of the lease (F5)."""
        self._workspaces = workspaces
        self._place = place
        self._lease = lease

    async def read(self, request: schema.ReadTextFileRequest) -> Message:
        """A file's text, or `limit` lines of it from `line` on, counted from 1."""
        path = absolute("path", request.path)
        window = LineWindow(request.line or 1, request.limit)
        part = await self._read(path, 0)
        size, offset = part.size, len(part.data)
        window.feed(part.data)
        while part.data and offset < size and not window.complete:
            part = await self._read(path, offset)
            offset += len(part.data)
            window.feed(part.data)
        return {"content": _decoded(path, window.lines)}

    async def write(self, request: schema.WriteTextFileRequest) -> Message:
        """Replace or make a file."""
        path = absolute("path", request.path)
        data = request.content.encode()
        if len(data) > MAX_WRITE_BYTES:
            raise RequestError(
                INVALID_PARAMS,
                f"content: {len(data)} bytes, at most {MAX_WRITE_BYTES} can be written at once",
            )
        await self._workspaces.write_file(
            self._place.endpoint,
            workspace_pb2.WriteFileRequest(
                grant=self._lease.grant,
                project=self._place.project,
                workspace_id=self._place.workspace_id,
                path=path,
                data=data,
            ),
        )
        return {}

    async def _read(self, path: str, offset: int) -> workspace_pb2.ReadFileResponse:
        return await self._workspaces.read_file(
            self._place.endpoint,
            workspace_pb2.ReadFileRequest(
                project=self._place.project, workspace_id=self._place.workspace_id, path=path, offset=offset
            ),
        )


class LineWindow:
    """Some lines of a text that comes in parts."""

    def __init__(self, first: int, limit: int | None) -> None:
        """`limit` lines from number `first` on, all without a limit."""
        self.lines = bytearray()
        self._skip = first - 1
        self._left = limit

    @property
    def complete(self) -> bool:
        """Whether nothing that follows can belong to it."""
        return self._left == 0

    def feed(self, data: bytes) -> None:
        """Take the next part; RequestError when there is more than can be given."""
        start, self._skip = _end_of_lines(data, self._skip)
        data = data[start:]
        if self._left is not None:
            end, self._left = _end_of_lines(data, self._left)
            data = data[:end]
        self.lines += data
        if len(self.lines) > MAX_READ_BYTES:
            raise RequestError(
                INVALID_PARAMS,
                f"more than {MAX_READ_BYTES} bytes cannot be read at once; ask for some of the lines",
            )


def absolute(field: str, path: str) -> str:
    """The path; the protocol knows absolute ones only."""
    if not PurePosixPath(path).is_absolute():
        raise RequestError(INVALID_PARAMS, f"{field}: {path!r} is not absolute")
    return path


def refused(error: MoorageError) -> RequestError:
    """What a workspace says, as an agent gets it."""
    if error.reason == ErrorReason.ERROR_REASON_FILE_NOT_FOUND:
        code = RESOURCE_NOT_FOUND
    elif isinstance(error, InvalidArgument) or error.reason in _THEIRS:
        code = INVALID_PARAMS
    else:
        code = INTERNAL_ERROR
    return RequestError(code, str(error), {"reason": error.reason_name, **error.metadata})


def _end_of_lines(data: bytes, count: int) -> tuple[int, int]:
    """Where so many lines end, and how many of them end in what follows the data."""
    end = 0
    while count and (at := data.find(b"\n", end)) >= 0:
        end, count = at + 1, count - 1
    return (len(data) if count else end), count


def _decoded(path: str, data: bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(INVALID_PARAMS, f"{path} holds no text in UTF-8") from error
