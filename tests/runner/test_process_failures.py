"""What a turn says of an agent whose process ended, and of one that has no network."""

from __future__ import annotations

import pytest
from moorage.common.v1.provision_pb2 import NetworkPolicy
from moorage.common.v1.turn_pb2 import EndReason
from moorage.workspace.v1.workspace_pb2 import ExecEnded

from services.runner.clients import processes
from services.runner.endings import TurnFailed
from services.runner.failures import check_network, process_failure
from services.runner.places import Place
from services.runner.profiles import load_profiles

NONE, BRIDGE, HOST = (
    NetworkPolicy.NETWORK_POLICY_NONE,
    NetworkPolicy.NETWORK_POLICY_BRIDGE,
    NetworkPolicy.NETWORK_POLICY_HOST,
)


@pytest.mark.parametrize(
    ("ended", "reason", "words"),
    [
        (ExecEnded(exit_code=3), EndReason.END_REASON_AGENT_EXITED, "the agent ended with exit code 3: why"),
        (
            ExecEnded(signal="SIGKILL"),
            EndReason.END_REASON_AGENT_EXITED,
            "the agent ended by signal SIGKILL: why",
        ),
        (
            ExecEnded(signal="SIGKILL", out_of_memory=True),
            EndReason.END_REASON_OUT_OF_MEMORY,
            "the agent ended by signal SIGKILL after the memory of its workspace was used up: why",
        ),
        (
            ExecEnded(exit_code=1, out_of_memory=True),
            EndReason.END_REASON_OUT_OF_MEMORY,
            "the agent ended with exit code 1 after the memory of its workspace was used up: why",
        ),
    ],
)
def test_an_agent_that_ended(ended: ExecEnded, reason: EndReason.ValueType, words: str) -> None:
    failure = process_failure(processes.end_of(ended), "first\nwhy")
    assert (failure.reason, str(failure)) == (reason, words)
    assert failure.code == EndReason.Name(reason).removeprefix("END_REASON_")


def test_an_agent_that_needs_a_network_is_not_started_without_one() -> None:
    profiles = load_profiles()
    for network in (BRIDGE, HOST):
        check_network(profiles["opencode"], place(network))
    check_network(profiles["demo"], place(NONE))
    with pytest.raises(TurnFailed) as failure:
        check_network(profiles["opencode"], place(NONE))
    assert failure.value.ending().reason == EndReason.END_REASON_PREPARE_FAILED
    assert failure.value.code == "NETWORK_REQUIRED"
    assert failure.value.metadata == {"profile": "opencode", "network": "NONE"}


def place(network: NetworkPolicy.ValueType) -> Place:
    return Place("default", "w", "/work", "127.0.0.1:9", "docker", network)
