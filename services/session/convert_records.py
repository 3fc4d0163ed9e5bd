"""Records and heartbeats to the contract."""

from __future__ import annotations

from moorage.common.v1 import record_pb2
from moorage.session.v1 import session_pb2

from services.session.convert import timestamp
from services.session.records import Heartbeat, Record


def record(stored: Record) -> record_pb2.Record:
    """A record as clients see it."""
    return record_pb2.Record(
        session_id=stored.session_id,
        seq=stored.seq,
        turn_id=stored.turn_id,
        turn_seq=stored.turn_seq,
        record_id=stored.record_id,
        create_time=timestamp(stored.create_time),
        body=record_pb2.RecordBody.FromString(stored.body),
    )


def heartbeat(sign: Heartbeat) -> session_pb2.Heartbeat:
    """A sign of life."""
    return session_pb2.Heartbeat(head_seq=sign.head_seq, time=timestamp(sign.time))
