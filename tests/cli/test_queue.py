"""`run --if-busy`, `stop --turn`, `turn` and `command`: turns that wait, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.programs import Place, Program
from tests.cli.test_orders import read_until, terminal
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(120)

# A turn that goes on until the test makes the file `go`.
GATE = "run until [ -e go ]; do sleep 0.05; done"
ENDLESS = "count to 100000 every 0.05"


def documents(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def running(place: Place, prompt: str) -> tuple[Program, str]:
    """A turn that an agent works on, and its id."""
    program = place.start("run", prompt, "--approval", "allow", "--json")
    turn_id = program.document()["admitted"]["turnId"]
    while "body" not in (event := program.document().get("record", {})) or not {
        "agentMessage",
        "toolCall",
    } & set(event["body"]):
        pass
    return program, turn_id


def queued(place: Place, prompt: str, *options: str) -> tuple[Program, dict[str, Any]]:
    """A turn that waits, as its first event tells it."""
    program = place.start("run", prompt, "--if-busy", "enqueue", "--json", *options)
    turn = program.document()["admitted"]
    assert turn["state"] == "TURN_STATE_QUEUED"
    return program, turn


async def test_a_turn_waits_for_the_one_in_progress_and_can_be_seen_and_withdrawn(here: Place) -> None:
    first, first_id = running(here, GATE)
    refused = here.moorage("run", "say no")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--if-busy enqueue waits for its end, --if-busy interrupt stops it" in refused.stderr
    second, second_turn = queued(here, "say second")
    third, third_turn = queued(here, "say third")
    assert (second_turn["queuePosition"], third_turn["queuePosition"]) == (1, 2)
    fourth = here.start("run", "say fourth", "--if-busy", "enqueue")
    await eventually(lambda: len(documents(here.moorage("session", "get", "--json").stdout)[0]["queue"]) == 3)
    shown = here.moorage("session", "get").stdout
    assert f"queue      {second_turn['turnId']}, {third_turn['turnId']}, turn_" in shown
    withdrawn = here.moorage("stop", "--turn", third_turn["turnId"])
    assert withdrawn.returncode == 0
    assert withdrawn.stdout.startswith(f"turn {third_turn['turnId']}: STOPPED after ")
    assert withdrawn.stdout.endswith("s: it had not begun\n")
    assert third.ended()[0] == 3
    listed = here.moorage("turn", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed[2:]] == [
        third_turn["turnId"],
        second_turn["turnId"],
        first_id,
    ]
    assert "QUEUED 2" in listed[1]
    assert listed[1].endswith("say fourth")
    assert listed[2].split()[3:] == ["STOPPED", "USER_STOP", "say", "third"]
    (here.work / "go").touch()
    assert [program.ended()[0] for program in (first, second)] == [0, 0]
    code, text, errors = fourth.ended()
    assert (code, text) == (0, "> say fourth\nfourth\n— COMPLETED (AGENT_ENDED)\n")
    assert errors.startswith("another turn is in progress; this one is number 3 in the queue (turn_")


def test_an_interrupting_turn_stops_the_one_in_progress_and_follows_it(here: Place) -> None:
    first, first_id = running(here, ENDLESS)
    waiting, turn = queued(here, "say later")
    interrupting = here.moorage("run", "say urgent", "--if-busy", "interrupt", "--json")
    assert interrupting.returncode == 0
    events = documents(interrupting.stdout)
    # Its own turn may have begun before it was looked at.
    admitted = events[0]["admitted"]
    assert admitted["state"] != "TURN_STATE_QUEUED" or admitted["queuePosition"] == 1
    assert events[-1]["ended"]["metadata"]["previousTurnId"] == first_id
    assert first.ended()[0] == 3
    assert waiting.ended()[0] == 0
    turns = {turn["turnId"]: turn for turn in documents(here.moorage("turn", "list", "--json").stdout)}
    assert turns[first_id]["endReason"] == "END_REASON_INTERRUPTED"
    assert turns[turn["turnId"]]["state"] == "TURN_STATE_COMPLETED"
    [command] = documents(here.moorage("command", "list", "--json").stdout)
    assert (command["turnId"], command["stopMethod"]) == (first_id, "STOP_METHOD_AGENT_CONFIRMED")
    assert documents(here.moorage("command", "get", command["commandId"], "--json").stdout) == [command]
    got = here.moorage("command", "get", command["commandId"], "--wait").stdout
    assert got.startswith(f"turn {first_id}: STOPPED after ")
    assert got.endswith("s: the agent confirmed and stays warm\n")
    assert here.moorage("command", "list", "--turn", "none").stdout.split() == [
        *("command", "created", "what", "became", "of", "it")
    ]


def test_after_a_stop_the_queue_is_held_until_the_next_turn(here: Place) -> None:
    first, _ = running(here, ENDLESS)
    waiting, turn = queued(here, "say later")
    stopped = here.moorage("stop")
    assert stopped.returncode == 0
    assert stopped.stderr == (
        f"turn {turn['turnId']} is held in the queue: the turn before did not complete; "
        "the next completed turn releases it (`moorage run …`), "
        f"`moorage stop {turn['sessionId']} --turn {turn['turnId']}` withdraws it\n"
    )
    assert first.ended()[0] == 3
    held = here.moorage("session", "get").stdout
    assert f"queue      {turn['turnId']}: held, the turn before did not complete; " in held
    assert f"`moorage stop {turn['sessionId']} --turn {turn['turnId']}` withdraws it" in held
    assert here.moorage("run", "say now").returncode == 0
    assert waiting.ended()[0] == 0


def test_a_turn_in_the_queue_says_on_a_terminal_what_it_waits_for(here: Place) -> None:
    first, _ = running(here, ENDLESS)
    with terminal(here, "run", "say later", "--if-busy", "enqueue") as (process, screen):
        read_until(screen, "queued, number 1, behind the turn in progress")
        assert here.moorage("stop").returncode == 0
        read_until(screen, "queued, number 1, held: the turn before did not complete")
        assert here.moorage("run", "say now").returncode == 0
        read_until(screen, "COMPLETED")
        assert process.wait() == 0
    assert first.ended()[0] == 3
