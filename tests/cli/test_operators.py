"""`session takeover` and `lease watch` against a running `up`."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.programs import Place, error_of
from tests.cli.test_orders import ENDLESS, documents, running, session_here

pytestmark = pytest.mark.timeout(120)


def test_a_takeover_ends_the_turn_of_whoever_drives_the_session(here: Place) -> None:
    turn = running(here, ENDLESS)
    lease = session_here(here)["lease"]
    wrong = here.moorage("session", "takeover", "--token", "999", "--json")
    assert wrong.returncode == 1
    assert "is driven with token" in error_of(wrong.stderr)["message"]
    unsaid = here.moorage("session", "takeover", "--json")
    assert unsaid.returncode == 2
    assert error_of(unsaid.stderr)["hint"].startswith("--yes ")
    taken = here.moorage("session", "takeover", "--token", lease["token"], "--yes", "--json")
    assert taken.returncode == 0, taken.stderr
    [told] = documents(taken.stdout)
    assert (told["lease"]["holder"], str(told["lease"]["token"])) == (lease["holder"], lease["token"])
    code, output, _ = turn.ended()
    assert code == 4
    ended = documents(output)[-1]["ended"]
    assert (ended["turnId"], ended["endReason"]) == (told["turn"], "END_REASON_TAKEN_OVER")
    again = documents(here.moorage("run", "say back", "--json").stdout)[-1]["ended"]
    assert again["state"] == "TURN_STATE_COMPLETED"
    assert int(again["metadata"]["token"]) > int(lease["token"])


def test_a_takeover_of_a_parked_runtime_loses_nothing(here: Place) -> None:
    here.moorage("run", "say parked")
    lease = session_here(here)["lease"]
    unsaid = here.moorage("session", "takeover")
    assert (unsaid.returncode, unsaid.stdout) == (2, "")
    assert session_here(here)["lease"]["token"] == lease["token"]
    taken = here.moorage("session", "takeover", "--yes")
    assert (taken.returncode, taken.stderr) == (0, "")
    assert taken.stdout == f"token {lease['token']} of {lease['holder']} is good no more\n"
    nobody = here.moorage("session", "takeover", "--yes")
    assert nobody.returncode == 1
    assert nobody.stderr.startswith("error: no runner drives projects/default/sessions/")
    assert session_here(here).get("turn") is None


def test_a_watch_of_leases_tells_who_gets_one_and_who_has_it_no_more(here: Place) -> None:
    here.moorage("run", "say hello")
    session = session_here(here)
    name = f"projects/default/sessions/{session['sessionId']}"
    watch = here.start("lease", "watch", name, "--every", "0.1", "--json")
    seen = watch.document()
    assert (seen["resource"], seen["token"], seen["live"]) == (name, session["lease"]["token"], True)
    here.moorage("session", "close")
    ended = watch.document()
    assert (ended["resource"], ended["token"]) == (name, session["lease"]["token"])
    assert not ended.get("live")
    watch.signal(signal.SIGINT)
    code, rest, errors = watch.ended()
    assert (code, rest, errors) == (130, "", ""), json.dumps([rest, errors])
