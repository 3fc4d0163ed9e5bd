"""Small things that tests of the runner need: records, attempts, leases."""

from __future__ import annotations

from moorage.common.v1.content_pb2 import ContentBlock, TextContent
from moorage.common.v1.grant_pb2 import Grant
from moorage.common.v1.record_pb2 import AgentMessage, RecordBody, ToolCall
from moorage.owner.v1 import lease_pb2

from services.common.clock import Clock
from services.fencing.leases import HeldLease
from services.runner.executions import Attempt

ATTEMPT = Attempt("default", "s1", "t1", "a1")


def message(text: str) -> RecordBody:
    """A piece of the agent's answer."""
    content = ContentBlock(text=TextContent(text=text))
    return RecordBody(agent_message=AgentMessage(message_id="m1", content=content))


def tool_call(name: str) -> RecordBody:
    """The begin of a tool call."""
    return RecordBody(tool_call=ToolCall(tool_call_id=name))


def held_lease(clock: Clock, ttl: float = 15.0) -> HeldLease:
    """A lease of session s1, as its holder has it."""
    lease = lease_pb2.Lease(resource=ATTEMPT.resource, holder="r/1", token=7)
    lease.ttl.FromMilliseconds(round(ttl * 1000))
    return HeldLease(lease_pb2.AcquireLeaseResponse(lease=lease, grant=grant(1)), clock.boottime(), clock)


def renew(lease: HeldLease, number: int, clock: Clock) -> None:
    """What the lease loop does with an answer of owner."""
    fresh = lease_pb2.Lease()
    fresh.expire_time.FromDatetime(clock.now())
    lease.renewed(grant(number), fresh.expire_time, clock.boottime())


def grant(number: int) -> Grant:
    """A grant that nobody verifies."""
    return Grant(kid="k", payload=f"grant {number}".encode(), signature=b"s")
