"""WorkspaceService: unpack, call, pack."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from moorage.workspace.v1 import workspace_pb2
from moorage.workspace.v1.workspace_pb2_grpc import WorkspaceServiceServicer

from services.common.errors import ShuttingDown
from services.common.logs import bind
from services.common.pages import PageToken, page_size
from services.common.validation import check_id, check_project
from services.workspace.changes import Changes
from services.workspace.exec.execs import Execs
from services.workspace.fence import Fence
from services.workspace.instance import Instance
from services.workspace.providers.registry import Registry
from services.workspace.provisioning import Provisioning
from services.workspace.resolving import Resolver
from services.workspace.servicers import messages
from services.workspace.servicers.arriving import Arriving
from services.workspace.servicers.execs import ExecCalls
from services.workspace.servicers.files import FileCalls
from services.workspace.servicers.garbage import GarbageCalls
from services.workspace.servicers.sources import setup_result, upload_of
from services.workspace.servicers.specs import limits, network_in_force, time_of
from services.workspace.sources.wanted import Archive
from services.workspace.specs import Limits
from services.workspace.store.sources import SourceStore
from services.workspace.store.workspaces import WorkspaceStore
from services.workspace.worker import Worker
from services.workspace.workspaces import IN_TRANSITION, Intent, Workspace, check_instance

Context = grpc.aio.ServicerContext[Any, Any]

# Others than this process may change a row, so waiters look for themselves now and then.
_LOOK: Final = 1.0
# A call that ends while its caller writes is an INTERNAL error to Python's gRPC, which then forgets
# what it has not read yet: how the command ended. So callers may first see it and close their side.
_LAST_WORDS: Final = 0.5
# Of what is left until a call's deadline, kept for the answer.
_ANSWER_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Parts:
    """What the servicer calls."""

    instance: Instance
    store: WorkspaceStore
    sources: SourceStore
    registry: Registry
    provisioning: Provisioning
    resolver: Resolver
    worker: Worker
    fence: Fence
    execs: Execs
    changes: Changes
    exec_calls: ExecCalls
    file_calls: FileCalls
    garbage_calls: GarbageCalls
    stopping: asyncio.Event


class WorkspaceServicer(WorkspaceServiceServicer):
    """The contract's side of the workspace service."""

    def __init__(self, parts: Parts) -> None:
        """Everything it needs."""
        self._parts = parts

    async def ProvisionWorkspace(
        self, request: workspace_pb2.ProvisionWorkspaceRequest, context: Context
    ) -> workspace_pb2.ProvisionWorkspaceResponse:
        """See the contract."""
        intent = messages.intent_of(request)
        bind(project=intent.project, session=intent.session_id, workspace=intent.workspace_id)
        async with self._kept(intent, upload_of(request.provision.source)):
            stored = await self._parts.provisioning.provision(intent)
        return workspace_pb2.ProvisionWorkspaceResponse(
            workspace=messages.workspace(stored), binding=messages.binding(stored)
        )

    async def GetWorkspace(
        self, request: workspace_pb2.GetWorkspaceRequest, context: Context
    ) -> workspace_pb2.GetWorkspaceResponse:
        """See the contract."""
        if request.wait:
            found = await self._settled(request.project, request.workspace_id, context.time_remaining())
        else:
            found = await self._carried(request.project, request.workspace_id)
        result = await self._parts.sources.result(request.project, request.workspace_id)
        answer = messages.workspace(found)
        answer.MergeFrom(workspace_pb2.Workspace(setup=setup_result(result)))
        return workspace_pb2.GetWorkspaceResponse(workspace=answer)

    async def ListWorkspaces(
        self, request: workspace_pb2.ListWorkspacesRequest, context: Context
    ) -> workspace_pb2.ListWorkspacesResponse:
        """See the contract."""
        project = check_project(request.project)
        size = page_size("page_size", request.page_size)
        listing = f"ListWorkspaces {project}"
        token = PageToken.decode(request.page_token, listing)
        after = str(token.key[0]) if token else ""
        found = await self._parts.store.list_workspaces(project, after, size + 1)
        response = workspace_pb2.ListWorkspacesResponse(workspaces=map(messages.workspace, found[:size]))
        if len(found) > size:
            response.next_page_token = PageToken(listing, (found[size - 1].workspace_id,)).encode()
        return response

    async def DeleteWorkspace(
        self, request: workspace_pb2.DeleteWorkspaceRequest, context: Context
    ) -> workspace_pb2.DeleteWorkspaceResponse:
        """See the contract."""
        await self._carried(request.project, request.workspace_id)
        self._parts.instance.require()
        if request.HasField("after"):
            after = time_of("after", request.after)
            marked = await self._parts.store.delete_later(request.project, request.workspace_id, after)
        else:
            marked = await self._parts.store.mark_deleting(request.project, request.workspace_id)
            self._parts.worker.wake()
        return workspace_pb2.DeleteWorkspaceResponse(workspace=messages.workspace(marked))

    async def ResolveBinding(
        self, request: workspace_pb2.ResolveBindingRequest, context: Context
    ) -> workspace_pb2.ResolveBindingResponse:
        """See the contract."""
        found = await self._carried(request.project, request.workspace_id)
        self._parts.instance.require()
        provider = await self._parts.resolver.resolve(found, messages.shown_binding(request.binding))
        return workspace_pb2.ResolveBindingResponse(
            root=found.root,
            endpoint=found.endpoint,
            provider=provider.name,
            limits=limits(found.spec.limits if found.spec else Limits()),
            network=network_in_force(found),
            environment_names=sorted(await self._parts.resolver.environment(found)),
            has_setup=found.spec is not None and found.spec.setup is not None,
        )

    async def ClaimWorkspace(
        self, request: workspace_pb2.ClaimWorkspaceRequest, context: Context
    ) -> workspace_pb2.ClaimWorkspaceResponse:
        """See the contract."""
        parts = self._parts
        parts.instance.require()
        check_named(request.project, request.workspace_id)
        shown = await parts.fence.examine(request.project, request.workspace_id, request.grant)
        bind(project=shown.session.project, session=shown.session.session_id)
        stored = await parts.fence.write_down(shown)
        # Only who still holds the lease knows what runs.
        parts.instance.require()
        others = parts.execs.claim(shown.session, shown.claims.token, request.keep_exec_id)
        await parts.execs.until_gone(others)
        return workspace_pb2.ClaimWorkspaceResponse(
            workspace=messages.workspace(stored), ended_execs=len(others)
        )

    async def Exec(  # type: ignore[override]  # it writes its answers itself, which grpc.aio allows
        self, request_iterator: AsyncIterator[workspace_pb2.ExecRequest], context: Context
    ) -> None:
        """See the contract."""
        frames = Arriving(request_iterator)
        try:
            await self._parts.exec_calls.run(frames, context.write)
            await frames.until_half_closed(_LAST_WORDS)
        finally:
            frames.close()

    async def ReadFile(
        self, request: workspace_pb2.ReadFileRequest, context: Context
    ) -> workspace_pb2.ReadFileResponse:
        """See the contract."""
        carried = await self._carried(request.project, request.workspace_id)
        return await self._parts.file_calls.read(request, carried)

    async def WriteFile(
        self, request: workspace_pb2.WriteFileRequest, context: Context
    ) -> workspace_pb2.WriteFileResponse:
        """See the contract."""
        check_named(request.project, request.workspace_id)
        return await self._parts.file_calls.write(request)

    async def ListDirectory(
        self, request: workspace_pb2.ListDirectoryRequest, context: Context
    ) -> workspace_pb2.ListDirectoryResponse:
        """See the contract."""
        carried = await self._carried(request.project, request.workspace_id)
        return await self._parts.file_calls.entries(request, carried)

    async def CollectGarbage(
        self, request: workspace_pb2.CollectGarbageRequest, context: Context
    ) -> workspace_pb2.CollectGarbageResponse:
        """See the contract."""
        return await self._parts.garbage_calls.collect(request)

    async def ListProviders(
        self, request: workspace_pb2.ListProvidersRequest, context: Context
    ) -> workspace_pb2.ListProvidersResponse:
        """See the contract."""
        return workspace_pb2.ListProvidersResponse(
            providers=[
                # That look may find the cause which is told then.
                messages.provider(each, await each.engine_state())
                for each in self._parts.registry.by_name()
            ]
        )

    @contextlib.asynccontextmanager
    async def _kept(self, intent: Intent, upload: bytes | None) -> AsyncIterator[None]:
        """What came with the request is stored before the intent, and goes if that is not."""
        if upload is None:
            yield
            return
        self._parts.instance.require()
        key = intent.project, intent.workspace_id
        source = intent.asked.source if intent.asked else None
        try:
            if isinstance(source, Archive):
                await self._parts.sources.keep_upload(*key, source.sha256, upload)
            yield
        finally:
            await self._parts.sources.drop_unwanted(*key)

    async def _carried(self, project: str, workspace_id: str) -> Workspace:
        check_named(project, workspace_id)
        found = await self._parts.store.get(project, workspace_id)
        return check_instance(found, self._parts.instance.instance_id)

    async def _settled(self, project: str, workspace_id: str, remaining: float | None) -> Workspace:
        """The workspace out of transition, or as it stands shortly before the call's deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if remaining is None else remaining * (1 - _ANSWER_SHARE)):
                return await self._until_settled(project, workspace_id)
        return await self._carried(project, workspace_id)

    async def _until_settled(self, project: str, workspace_id: str) -> Workspace:
        while True:
            changed = self._parts.changes.current()
            found = await self._carried(project, workspace_id)
            if found.state not in IN_TRANSITION:
                return found
            if self._parts.stopping.is_set():
                raise ShuttingDown
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await changed.wait()


def check_named(project: str, workspace_id: str) -> None:
    """The name of a workspace in a request."""
    check_project(project)
    check_id("workspace_id", workspace_id)
