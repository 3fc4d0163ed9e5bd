"""`run`, `watch` and `session`: what people see, what programs read, and the exit codes."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Place, error_of
from tests.cli.trees import descendants, processor_time
from tests.conditions import eventually

pytestmark = pytest.mark.timeout(120)

# A turn that goes on until the test makes the file `go`.
GATE = "run until [ -e go ]; do sleep 0.05; done"


def documents(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def session_here(place: Place) -> dict[str, Any]:
    """The session of the directory."""
    [session] = documents(place.moorage("session", "get", "--json").stdout)
    return session


async def test_services_at_rest_leave_the_processor_alone(moored: Place) -> None:
    [running] = moored.state_home.glob("moorage/*/up.json")
    family = descendants(json.loads(running.read_text())["pid"])
    services = [pid for pid, command in family.items() if " -m services." in command]
    assert len(services) == 4

    async def are_at_rest() -> bool:
        before, since = list(map(processor_time, services)), time.monotonic()
        await eventually(lambda: time.monotonic() > since + 3.0)
        used = [now - then for now, then in zip(map(processor_time, services), before, strict=True)]
        return max(used) < 0.2

    await eventually(are_at_rest, within=30, what="less than 0.2 s of it in 3 s")


def test_a_turn_is_streamed_and_the_next_one_continues_the_session(here: Place) -> None:
    first = here.moorage("run", "say hello there\nrun uname -s")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines() == [
        "> say hello there",
        "> run uname -s",
        "hello there",
        "⚙ uname -s",
        "  Linux",
        "✓",
        "The command ended with exit code 0.",
        "— COMPLETED (AGENT_ENDED)",
    ]
    second = here.moorage("run", "say again", "--json")
    events = documents(second.stdout)
    assert [next(iter(event)) for event in (events[0], events[-1])] == ["admitted", "ended"]
    assert events[-1]["ended"]["metadata"]["previousTurnId"]
    seqs = [int(event["record"]["seq"]) for event in events[1:-1]]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    stored = documents(here.moorage("watch", "--no-follow", "--json").stdout)
    assert [record["seq"] for record in stored] == [str(seq) for seq in range(1, seqs[-1] + 1)]
    assert [event["record"] for event in events[1:-1]] == stored[seqs[0] - 1 :]
    shown = here.moorage("watch", "--no-follow", "--after", str(seqs[0] - 1))
    assert shown.stdout == "> say again\nagain\n— COMPLETED (AGENT_ENDED)\n"


def test_a_directory_has_one_at_a_time(moored: Place) -> None:
    second = moored.moorage("up")
    assert second.returncode == 1
    assert second.stderr.startswith("error: moorage up runs for this directory already: process ")
    assert len(second.stderr.splitlines()) == 1
    told = moored.moorage("up", "--json")
    assert "serving clients on 127.0.0.1:" in told.stderr
    assert moored.moorage("session", "list").returncode == 0


def test_a_subdirectory_has_a_session_of_its_own(here: Place) -> None:
    (here.work / "sub").mkdir()
    sub = Place(here.work / "sub", here.state_home)
    ran = sub.moorage("run", "run pwd")
    assert ran.returncode == 0
    assert f"  {sub.work}\n" in ran.stdout
    assert here.moorage("session", "get").returncode == 1
    assert session_here(sub)["binding"]["local"]["directory"] == str(sub.work)


async def test_two_shells_at_once_share_the_new_session_and_one_turn_runs(here: Place) -> None:
    shells = [here.start("run", GATE, "--json", "--approval", "allow") for _ in range(2)]
    await eventually(lambda: any(shell.process.poll() is not None for shell in shells), within=50)
    (here.work / "go").touch()
    ends = [shell.ended() for shell in shells]
    assert sorted(code for code, _, _ in ends) == [0, 1]
    refusal = next(error_of(errors) for code, _, errors in ends if code)
    assert (refusal["code"], refusal["reason"]) == ("FAILED_PRECONDITION", "TURN_IN_PROGRESS")
    [winner] = [documents(output)[0]["admitted"] for code, output, _ in ends if not code]
    assert refusal["metadata"]["turn_id"] == winner["turnId"]
    assert winner["sessionId"] in refusal["hint"]
    key = session_here(here)["labels"]["moorage.directory"]
    listed = here.moorage("session", "list", "--json", "--label", f"moorage.directory={key}")
    assert len(documents(listed.stdout)) == 1


async def test_two_shells_at_once_that_wish_different_things_make_one_session_and_one_is_refused(
    here: Place,
) -> None:
    shells = [here.start("run", "say hello", "--json", "--approval", policy) for policy in ("allow", "deny")]
    ends = {policy: shell.ended() for policy, shell in zip(("allow", "deny"), shells, strict=True)}
    assert sorted(code for code, _, _ in ends.values()) == [0, 2]
    [has] = [policy for policy, (code, _, _) in ends.items() if not code]
    assert session_here(here)["approvalPolicy"] == f"APPROVAL_POLICY_{has.upper()}"
    [refusal] = [error_of(errors) for code, _, errors in ends.values() if code]
    assert f"was made with {has}" in refusal["message"]


@pytest.mark.parametrize(
    ("wish", "has"),
    [
        (["--approval", "deny"], "allow"),
        (["--profile", "other"], "demo"),
        (["--model", "large"], "none"),
        (["--mode", "plan"], "none"),
        (["--agent-option", "effort=high"], "none"),
        (["--mcp", "files=/bin/files"], "none"),
    ],
)
def test_a_session_is_not_used_as_if_it_were_another(here: Place, wish: list[str], has: str) -> None:
    name = here.work.name[:60]
    here.moorage("session", "create", name, "--approval", "allow", "--directory", ".")
    refused = here.moorage("run", "--session", name, *wish, "run touch ran")
    assert (refused.returncode, refused.stdout) == (2, "")
    error, hint = refused.stderr.splitlines()
    assert error == f"error: {wish[0]}: session {name} was made with {has}, and keeps it"
    assert "`moorage session create`" in hint
    assert not (here.work / "ran").exists()


def test_what_a_session_was_made_with_may_be_said_again(here: Place) -> None:
    made = ("--approval", "allow", "--profile", "demo")
    assert here.moorage("run", *made, "say first").returncode == 0
    again = here.moorage("run", *made, "say again")
    assert (again.returncode, again.stderr) == (0, "")
    refused = here.moorage("run", "--approval", "deny", "say no")
    assert refused.returncode == 2
    session_id = session_here(here)["sessionId"]
    assert f"`moorage session close {session_id}`" in refused.stderr
    shown = here.moorage("session", "get").stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("approval")] == [
        ["approval", "allow"]
    ]
    here.moorage("session", "close")
    assert here.moorage("run", "--approval", "deny", "say yes").returncode == 0


@pytest.mark.parametrize(
    ("prompt", "code", "told"),
    [
        ("fail badly", 1, "AGENT_PROTOCOL_ERROR: the agent refused session/prompt: badly (-32603)"),
        ("exit 3", 1, "AGENT_EXITED: the agent ended with exit code 3"),
    ],
)
def test_a_failed_turn_says_why(here: Place, prompt: str, code: int, told: str) -> None:
    failed = here.moorage("run", prompt)
    assert failed.returncode == code
    assert failed.stdout.splitlines()[1:] == [told, f"— FAILED ({told.partition(':')[0]})"]


def test_ctrl_c_leaves_the_turn_alone_and_says_how_to_see_it(here: Place) -> None:
    turn = here.start("run", GATE)
    while not turn.line().startswith("⚙"):
        pass
    turn.signal(signal.SIGINT)
    code, _, errors = turn.ended()
    assert code == 130
    session = session_here(here)
    assert session["turn"]["state"] == "TURN_STATE_RUNNING"
    assert errors.startswith(f"the turn goes on: `moorage watch {session['sessionId']} --after ")
    watch = here.start("watch", "--json", session["sessionId"])
    (here.work / "go").touch()
    while "turnEnded" not in (record := watch.document())["body"]:
        pass
    assert record["body"]["turnEnded"]["state"] == "TURN_STATE_COMPLETED"
    watch.signal(signal.SIGINT)
    assert watch.ended() == (130, "", "")


def test_sigterm_ends_a_watch_in_order(here: Place) -> None:
    here.moorage("run", "say something")
    watch = here.start("watch")
    while not watch.line().startswith("— COMPLETED"):
        pass
    watch.signal(signal.SIGTERM)
    assert watch.ended() == (143, "", "")


def test_a_reader_that_leaves_ends_a_run_quietly(here: Place) -> None:
    assert here.start("run", "say hello").abandoned() == (1, "")


def test_sessions_are_made_listed_and_shown(here: Place) -> None:
    name = here.work.name[:60]
    made = here.moorage("session", "create", name, "--label", f"test={name}", "--directory", ".", "--wait")
    assert (made.returncode, made.stdout, made.stderr) == (0, f"{name}\n", "")
    [again] = documents(
        here.moorage("session", "create", "--provision", "local", "--label", f"test={name}", "--json").stdout
    )
    assert again["binding"]["origin"] == "BINDING_ORIGIN_PROVISIONED"
    listed = here.moorage("session", "list", "--label", f"test={name}")
    header, newest, first = listed.stdout.splitlines()
    assert header.split("  ")[0].strip() == "session"
    assert newest.startswith(again["sessionId"])
    assert first.startswith(name)
    assert first.endswith(str(here.work))
    limited = here.moorage("session", "list", "--label", f"test={name}", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2
    assert limited.stderr == "there are more than 1; --limit shows them\n"
    shown = here.moorage("session", "get", name)
    assert f"test={name}" in shown.stdout
    assert "READY" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["session", "get", "nowhere"], 1, "session nowhere does not exist in project default (NOT_FOUND, "),
        (["session", "get", "a b"], 2, "session_id: must be 1 to 128 of A-Z a-z 0-9 _ - (INVALID_ARGUMENT"),
        (["session", "create", "--profile", "none"], 2, "agent.profile: "),
        (["session", "create", "--directory", "/etc"], 2, "binding.local.directory: /etc lies outside "),
        (["session", "create", "--provision", "none"], 1, "(FAILED_PRECONDITION, PROVIDER_UNAVAILABLE)"),
        (["run", ""], 2, "prompt"),
        (["watch", "nowhere"], 1, "(NOT_FOUND, SESSION_NOT_FOUND)"),
        (["watch"], 1, "no session belongs to "),
        (["--project", "other", "watch", "nowhere"], 1, "in project other"),
    ],
)
def test_a_refusal_is_one_line_and_a_code(here: Place, arguments: list[str], code: int, error: str) -> None:
    refused = here.moorage(*arguments)
    first = refused.stderr.splitlines()[0]
    assert refused.returncode == code
    assert first.startswith("error: ")
    assert error in first
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_a_refusal_as_json_names_reason_and_fields(moored: Place) -> None:
    refused = moored.moorage("session", "get", "a b", "--json")
    error = error_of(refused.stderr)
    assert (error["code"], error["reason"]) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert [violation["field"] for violation in error["violations"]] == ["session_id"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--address", "nowhere", "session", "list"],
        ["--project", "Not One", "session", "list"],
        ["session", "create", "--label", "no-value"],
        ["session", "create", "--directory", ".", "--provision", "local"],
        ["session", "list", "--limit", "0"],
        ["watch", "--after", "-1"],
        ["run"],
        ["nothing"],
    ],
)
def test_bad_usage_is_refused_before_anything_is_called(place: Place, arguments: list[str]) -> None:
    refused = place.moorage(*arguments)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("arguments", [["run", "say hello"], ["watch"], ["session", "list"]])
def test_without_a_service_it_says_who_named_the_address(place: Place, arguments: list[str]) -> None:
    told = place.moorage(*arguments, MOORAGE_ADDRESS="127.0.0.1:1")
    assert told.returncode == 6
    first, second = told.stderr.splitlines()
    assert first == "error: no session service answers at 127.0.0.1:1"
    assert second.startswith("the address comes from --address or MOORAGE_ADDRESS: ")


def test_a_directory_elsewhere_is_told_where_agents_may_work(moored: Place, tmp_path: Path) -> None:
    [running] = moored.state_home.glob("moorage/*/up.json")
    address = json.loads(running.read_text())["session"]
    refused = Place(tmp_path, tmp_path).moorage("run", "say hello", MOORAGE_ADDRESS=address)
    assert refused.returncode == 2
    assert "PATH_OUTSIDE_ROOT" in refused.stderr
    assert (
        f"the services at {address} give agents no other directories; `run --docker --empty`"
        in refused.stderr
    )
    assert "moorage up" not in refused.stderr


def test_a_workspace_that_will_not_be_ready_fails_who_waits_for_it(here: Place) -> None:
    create = ("session", "create", "unready", "--provision", "local", "--setup", "sh -c 'exit 3'", "--wait")
    created = here.moorage(*create)
    assert (created.returncode, created.stdout) == (1, "unready\n")
    assert "is FAILED: its set-up command ended with 3" in created.stderr
    assert here.moorage("session", "delete", "unready", "--yes").returncode == 0
