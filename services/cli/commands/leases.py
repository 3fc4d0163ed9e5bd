"""`moorage lease …`: looks behind the session service, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Annotated

import grpc
import typer
from google.protobuf.timestamp_pb2 import Timestamp
from moorage.owner.v1 import lease_pb2
from moorage.owner.v1.lease_pb2_grpc import LeaseServiceStub

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.operators import OwnerOption, channel_to
from services.cli.output import Output
from services.cli.patience import Patience

if TYPE_CHECKING:
    from moorage.owner.v1.lease_pb2_grpc import LeaseServiceAsyncStub

_PAGE = 1000

lease_app = typer.Typer(no_args_is_help=True, help="Leases: who drives what.")


@lease_app.command("list")
def list_leases(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="E.g. `runners/`.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    owner: OwnerOption = "",
    _json: JsonOption = False,
) -> None:
    """List leases in force."""
    options: Context = context.obj

    async def work() -> Exit:
        async with channel_to("owner", owner) as channel:
            leases = await _leases(LeaseServiceStub(channel), prefix, live_only=not everything)
        if options.output.as_json:
            for lease in leases:
                options.output.message(lease)
        else:
            options.output.table(map(_lease_row, leases), ("lease", "token", "until", "held by"))
        return Exit.COMPLETED

    run(options.output, work)


@lease_app.command("get")
def get_lease(
    context: typer.Context,
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="E.g. `projects/default/sessions/…`; or a session's id.")
    ],
    owner: OwnerOption = "",
    _json: JsonOption = False,
) -> None:
    """Show a lease, also one that has ended."""
    options: Context = context.obj
    name = resource if "/" in resource else f"projects/{options.project}/sessions/{resource}"

    async def work() -> Exit:
        async with channel_to("owner", owner) as channel:
            answer = await LeaseServiceStub(channel).GetLease(lease_pb2.GetLeaseRequest(resource=name))
        if options.output.as_json:
            options.output.message(answer.lease)
        else:
            options.output.table(_lease_facts(answer.lease))
        return Exit.COMPLETED

    run(options.output, work)


@lease_app.command("watch")
def watch_leases(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="E.g. `runners/`.")] = "",
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look.")] = 1.0,
    owner: OwnerOption = "",
    _json: JsonOption = False,
) -> None:
    """Tell who gets a lease and who has it no more, until interrupted."""
    options: Context = context.obj

    async def work() -> Exit:
        known: dict[str, lease_pb2.Lease] = {}
        patience = Patience(options.output.hint, "the owner service")
        async with channel_to("owner", owner) as channel:
            stub = LeaseServiceStub(channel)
            live = await _leases(stub, prefix, live_only=True)
            while True:
                for lease in _changes(known, live):
                    _tell_change(options.output, lease)
                known = {lease.resource: lease for lease in live}
                await asyncio.sleep(every)
                live = await _leases_again(stub, prefix, patience)

    run(options.output, work)


async def _leases(stub: LeaseServiceAsyncStub, prefix: str, *, live_only: bool) -> list[lease_pb2.Lease]:
    request = lease_pb2.ListLeasesRequest(prefix=prefix, live_only=live_only, page_size=_PAGE)
    leases: list[lease_pb2.Lease] = []
    while True:
        page = await stub.ListLeases(request)
        leases.extend(page.leases)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return leases


async def _leases_again(
    stub: LeaseServiceAsyncStub, prefix: str, patience: Patience
) -> list[lease_pb2.Lease]:
    """Those in force, also when the service is away for a while. Raises Cut."""
    while True:
        try:
            live = await _leases(stub, prefix, live_only=True)
        except grpc.aio.AioRpcError as error:
            await patience.spend_on(error)
        else:
            patience.reward()
            return live


def _changes(known: Mapping[str, lease_pb2.Lease], live: Iterable[lease_pb2.Lease]) -> list[lease_pb2.Lease]:
    """The leases that were granted, and as not live any more those that have ended."""
    now = {lease.resource: lease for lease in live}
    ended = [_ended(lease) for name, lease in known.items() if name not in now]
    granted = [lease for name, lease in now.items() if name not in known or known[name].token != lease.token]
    return ended + granted


def _ended(lease: lease_pb2.Lease) -> lease_pb2.Lease:
    ended = lease_pb2.Lease()
    ended.CopyFrom(lease)
    ended.live = False
    return ended


def _tell_change(output: Output, lease: lease_pb2.Lease) -> None:
    if output.as_json:
        output.message(lease)
    else:
        what = "is held by" if lease.live else "is held no more by"
        output.line(f"{lease.resource} {what} {lease.holder}, token {lease.token}")


def _lease_row(lease: lease_pb2.Lease) -> tuple[str, ...]:
    return lease.resource, str(lease.token), _local(lease.expire_time), lease.holder


def _lease_facts(lease: lease_pb2.Lease) -> list[tuple[str, str]]:
    facts = {
        "lease": lease.resource,
        "held by": lease.holder,
        "token": str(lease.token),
        "live": "yes" if lease.live else "no",
        "since": _local(lease.acquire_time),
        "until": _local(lease.expire_time),
        "endpoint": lease.endpoint,
        "labels": " ".join(f"{key}={value}" for key, value in sorted(lease.labels.items())),
    }
    return [(name, value) for name, value in facts.items() if value]


def _local(time: Timestamp) -> str:
    return time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
