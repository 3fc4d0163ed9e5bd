"""`moorage runner …`: orders for runners, for operators."""

from __future__ import annotations

from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub
from moorage.runner.v1 import runner_pb2
from moorage.runner.v1.runner_pb2_grpc import RunnerServiceStub

from services.cli.app import Context, JsonOption, run
from services.cli.asking import YesOption, confirm
from services.cli.exits import Exit
from services.cli.failures import CommandFailed
from services.cli.operators import OwnerOption, channel_to
from services.common.channels import open_channel

runner_app = typer.Typer(no_args_is_help=True, help="Runners: who drives agents.")


class NotRegistered(CommandFailed):
    """No runner of this name can be found."""


@runner_app.command("drain")
def drain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in `lease list runners/`.")],
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="How long turns may go on. Default: as the runner is set to."
        ),
    ] = None,
    yes: YesOption = False,
    wait: Annotated[bool, typer.Option(help="Return when nothing is left, not when it has begun.")] = True,
    owner: OwnerOption = "",
    _json: JsonOption = False,
) -> None:
    """Have a runner take no more turns, for good, and let go of what it has."""
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("owner", owner) as channel:
            request = lease_pb2.GetLeaseRequest(resource=f"runners/{name}")
            lease = (await LeaseServiceStub(channel).GetLease(request)).lease
        if not lease.live:
            raise NotRegistered(f"runner {name} is not registered any more")
        await confirm(options.output, f"have {lease.holder} take no more turns, for good?", yes=yes)
        async with open_channel(lease.endpoint) as channel:
            left = await RunnerServiceStub(channel).Drain(_request(grace, wait=wait))
        if options.output.as_json:
            options.output.message(left)
        else:
            options.output.line(f"{left.holder}: {left.executions} turns and {left.runtimes} agents are left")
        return Exit.COMPLETED

    run(options.output, work)


def _request(grace: float | None, *, wait: bool) -> runner_pb2.DrainRequest:
    request = runner_pb2.DrainRequest(wait=wait)
    if grace is not None:
        duration = Duration()
        duration.FromNanoseconds(round(grace * 1e9))
        request.grace.CopyFrom(duration)
    return request
