"""CollectGarbage: unpack, call, pack."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.workspace.v1 import workspace_pb2

from services.common.errors import DependencyUnavailable
from services.common.validation import check_text
from services.workspace.collector.collector import Collector
from services.workspace.collector.garbage import Garbage


@dataclass(frozen=True, slots=True)
class GarbageCalls:
    """Passes that somebody asked for."""

    collector: Collector

    async def collect(
        self, request: workspace_pb2.CollectGarbageRequest
    ) -> workspace_pb2.CollectGarbageResponse:
        """One pass. DependencyUnavailable when the one provider that was named told nothing."""
        name = check_text("provider", request.provider)
        report = await self.collector.collect(name, dry_run=request.dry_run)
        if name in report.unasked and not report.garbage:
            raise DependencyUnavailable(
                dependency=f"provider {name}", cause=report.unasked[name], retry_after=1.0
            )
        return workspace_pb2.CollectGarbageResponse(
            garbage=map(_message, report.garbage),
            unasked=(
                workspace_pb2.UnaskedProvider(provider=provider, cause=cause)
                for provider, cause in report.unasked.items()
            ),
        )


def _message(garbage: Garbage) -> workspace_pb2.Garbage:
    return workspace_pb2.Garbage(
        kind=workspace_pb2.GarbageKind.Value(f"GARBAGE_KIND_{garbage.kind}"),
        provider=garbage.provider,
        project=garbage.project,
        workspace_id=garbage.workspace_id,
        resource=garbage.resource,
        cause=garbage.cause,
        done=garbage.done,
    )
