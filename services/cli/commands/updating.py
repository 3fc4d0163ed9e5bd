"""`moorage session update`: what of a session can be changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import turn_pb2
from moorage.session.v1 import session_pb2

from services.cli import facts
from services.cli.app import Context, JsonOption, call
from services.cli.connection import Connection
from services.cli.directory import find_session
from services.cli.exits import Exit
from services.cli.options import Approval, labels_of
from services.common.validation import mint_id


@dataclass(frozen=True, slots=True)
class _Changes:
    """What is to be changed; the rest stays."""

    approval: Approval | None
    labels: Mapping[str, str]
    removed: Sequence[str]
    max_duration: float | None
    max_silence: float | None
    max_tool_calls: int | None

    def request(self, found: session_pb2.Session) -> session_pb2.UpdateSessionRequest:
        """For the session as it was found, and refused when it has changed since.

        Labels and limits are replaced as wholes: nobody else's change may be lost between.
        """
        request = session_pb2.UpdateSessionRequest(
            session_id=found.session_id, etag=found.etag, request_id=mint_id("update")
        )
        if self.labels or self.removed:
            request.update_mask.paths.append("labels")
            kept = {**found.labels, **self.labels}
            request.labels.update({key: kept[key] for key in kept if key not in self.removed})
        if self.approval is not None:
            request.update_mask.paths.append("approval_policy")
            request.approval_policy = self.approval.message
        if (self.max_duration, self.max_silence, self.max_tool_calls) != (None, None, None):
            request.update_mask.paths.append("limits")
            request.limits.CopyFrom(self._limits(found.limits))
        if not request.update_mask.paths:
            raise typer.BadParameter("say what is to be changed", param_hint="--approval, --label, …")
        return request

    def _limits(self, found: turn_pb2.Limits) -> turn_pb2.Limits:
        limits = turn_pb2.Limits()
        limits.CopyFrom(found)
        _limit(limits.max_duration, self.max_duration)
        _limit(limits.max_silence, self.max_silence)
        if self.max_tool_calls is not None:
            limits.max_tool_calls = self.max_tool_calls
        return limits


def update(
    context: typer.Context,
    session_id: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="The session. Default: that of this directory.")
    ] = "",
    approval: Annotated[
        Approval | None, typer.Option(help="What happens to the agent's questions, from the next one on.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a label; repeatable.")
    ] = None,
    remove_label: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Remove a label.")] = None,
    max_duration: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="How long a turn may last.")
    ] = None,
    max_silence: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="How long an agent may say nothing.")
    ] = None,
    max_tool_calls: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="How many a turn may have; 0: any number.")
    ] = None,
    _json: JsonOption = False,
) -> None:
    """Change a session: what is not named stays. Limits count for turns that begin afterwards."""
    options: Context = context.obj
    changes = _Changes(
        approval, labels_of(label), remove_label or [], max_duration, max_silence, max_tool_calls
    )

    async def work(connection: Connection) -> Exit:
        wanted = session_id or (await find_session(connection, Path.cwd())).session_id
        found = await connection.sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=wanted), metadata=connection.metadata
        )
        changed = await connection.sessions.UpdateSession(
            changes.request(found.session), metadata=connection.metadata
        )
        if options.output.as_json:
            options.output.message(changed.session)
        else:
            options.output.table(facts.of_session(changed.session))
        return Exit.COMPLETED

    call(options, work)


def _limit(limit: Duration, seconds: float | None) -> None:
    if seconds is not None:
        limit.FromNanoseconds(round(seconds * 1e9))
