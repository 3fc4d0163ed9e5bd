"""The columns of the table: in which ways a Stop is ordered, and what each call was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from moorage.session.v1 import session_pb2

from services.common.status import from_rpc_error
from tests.runner.talks import PATIENCE, Talks


@dataclass(frozen=True, slots=True)
class Names:
    """The session of a cell and the turns in it: `turn` is at the moment, `before` has
    ended, `first` is the one that a queued turn waits for.
    """

    session: str
    before: str
    first: str
    turn: str
    later: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one call: the command's id, or how it was refused."""

    command_id: str = ""
    refusal: str = ""


Order = Callable[["Stops"], Awaitable[Sequence[Answer]]]


@dataclass(frozen=True, slots=True)
class Column:
    """A way to order a Stop. `afterwards` is called once all has settled.

    `spares` says that the turn at the moment is not meant, `is_named` that the Stop names a turn.
    """

    name: str
    order: Order
    afterwards: Order | None = None
    spares: bool = False
    is_named: bool = True


class Stops:
    """Orders Stops in one session."""

    def __init__(self, talks: Talks, names: Names) -> None:
        self._talks = talks
        self.names = names

    async def stop(self, turn_id: str = "", request_id: str = "") -> Answer:
        """StopTurn."""
        request = session_pb2.StopTurnRequest(
            session_id=self.names.session, expected_turn_id=turn_id, request_id=request_id
        )
        try:
            response = await self._talks.stub.StopTurn(request, timeout=PATIENCE)
        except grpc.aio.AioRpcError as error:
            return refused(error)
        return Answer(response.command.command_id)

    async def start(self, turn_id: str) -> Answer:
        """StartTurn, of which only the refusal is told."""
        try:
            await self._talks.start(self.names.session, turn_id, "say never")
        except grpc.aio.AioRpcError as error:
            return Answer(refusal=f"start {refused(error).refusal}")
        return Answer(refusal="start OK")


def refused(error: grpc.aio.AioRpcError) -> Answer:
    """Code and reason."""
    return Answer(refusal=f"{error.code().name}/{from_rpc_error(error).reason_name}")


def told(answers: Sequence[Answer]) -> str:
    """All answers, as the table says them."""
    words: list[str] = []
    seen: set[str] = set()
    for answer in answers:
        words.append(answer.refusal or ("same" if answer.command_id in seen else "OK"))
        seen.add(answer.command_id)
    return ", ".join(words)


async def _unnamed(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop()]


async def _right(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.turn)]


async def _wrong(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.before)]


async def _not_yet(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.later)]


async def _not_any_more(stops: Stops) -> Sequence[Answer]:
    return [await stops.start(stops.names.later)]


async def _repeated(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.turn, "r1"), await stops.stop(stops.names.turn, "r1")]


async def _once_more(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.turn, "r1")]


async def _reused(stops: Stops) -> Sequence[Answer]:
    return [await stops.stop(stops.names.turn, "r1"), await stops.stop("", "r1")]


async def _two(stops: Stops) -> Sequence[Answer]:
    calls: list[Any] = [stops.stop(stops.names.turn), stops.stop(stops.names.turn)]
    # Which of them came first is not known.
    return sorted(await asyncio.gather(*calls), key=lambda answer: answer.refusal)


COLUMNS = (
    Column("unnamed", _unnamed, is_named=False),
    Column("right turn", _right),
    Column("wrong turn", _wrong, spares=True),
    Column("turn not yet admitted", _not_yet, _not_any_more, spares=True),
    Column("repeated request_id", _repeated, _once_more),
    Column("reused request_id", _reused),
    Column("two at once", _two),
)
