"""DeleteSession against everything else at once, on two replicas: whatever wins, nothing is left and nothing comes back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from moorage.session.v1 import session_pb2

from services.common.channels import open_channel
from services.common.errors import MoorageError
from tests.session.clients import Client
from tests.session.places import Places, running_session
from tests.session.tables import remains, tombstones

SESSIONS = 25
GONE = {"SESSION_NOT_FOUND", "SESSION_CLOSED", "SESSION_ALREADY_EXISTS"}
# An id is never used again, and a repeated call has its answer.
LATE = {"create": "SESSION_ALREADY_EXISTS", "delete": ""}
Call = Callable[[Client, str], Awaitable[object]]

CALLS: dict[str, Call] = {
    "start": lambda client, name: client.start(name, request_id="start", if_busy=session_pb2.IF_BUSY_ENQUEUE),
    "stop": lambda client, name: client.stop(name, request_id="stop"),
    "close": lambda client, name: client.close(name, request_id="close"),
    "update": lambda client, name: client.update(name, "labels", labels={"a": "b"}, request_id="update"),
    "create": lambda client, name: client.create(session_id=name),
    "get": lambda client, name: client.get(name),
    "records": lambda client, name: client.list_records(name),
    "delete": lambda client, name: client.delete(name, wait=True, request_id="delete"),
}


async def test_nothing_survives_the_deletion_of_its_session(places: Places, database_url: str) -> None:
    outcomes: Counter[str] = Counter()
    async with (
        running_session(places) as one,
        running_session(places) as other,
        open_channel(one.endpoint) as to_one,
        open_channel(other.endpoint) as to_other,
    ):
        clients = (Client(to_one), Client(to_other))
        for number in range(SESSIONS):
            name = f"s{number}"
            await clients[0].create(session_id=name)
            await clients[0].start(name, turn_id="t1")
            chance = random.Random(number)

            def told(name: str = name, chance: random.Random = chance) -> Awaitable[list[str]]:
                return asyncio.gather(
                    *(
                        outcome(call, chance.choice(clients), name, chance.randrange(6))
                        for call in CALLS.values()
                    )
                )

            outcomes.update(await told())
            # Some come before the deletion and some meet it; these come after it.
            late = dict(zip(CALLS, await told(), strict=True))
            assert late == {**dict.fromkeys(CALLS, "SESSION_NOT_FOUND"), **LATE}
            left = await remains(database_url, name)
            assert left == {"sessions": 1, "request_ids": 1}, (name, left, outcomes)
    assert outcomes.keys() <= {"", *GONE}, outcomes
    assert len(await tombstones(database_url)) == SESSIONS


async def outcome(call: Call, client: Client, name: str, delay: int) -> str:
    """Why the call was refused; empty when it was not."""
    for _ in range(delay):
        await asyncio.sleep(0)
    try:
        await call(client, name)
    except MoorageError as refused:
        return refused.reason_name
    return ""
