"""Turns from admission to settlement, with the demo agent."""

from __future__ import annotations

from moorage.common.v1 import turn_pb2

from tests.runner.parts import Stack
from tests.runner.talks import Talks, kinds_of


async def test_a_turn_is_carried_out_and_recorded(stack: Stack, talks: Talks) -> None:
    runner = await stack.add_runner()
    await talks.create("s")
    turn = await talks.run("s", "t", "say one two three")
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED, turn
    assert turn.end_reason == turn_pb2.END_REASON_AGENT_ENDED
    assert turn.stop_reason == "end_turn"
    assert turn.runtime_after == turn_pb2.RUNTIME_AFTER_ENDED
    assert turn.prompt_sent
    assert turn.usage.output_tokens == 3
    assert turn.metadata.runner_id == runner.holder
    assert turn.metadata.agent == "moorage-demo 1"
    assert turn.metadata.workspace_provider == "local"
    assert turn.metadata.resume_kind == turn_pb2.RESUME_KIND_FRESH
    records = await talks.records("s", "t")
    assert kinds_of(records)[:2] == ["user_message", "turn_started"]
    assert kinds_of(records)[-1] == "turn_ended"
    assert await talks.said("s", "t") == "one two three"
