"""Wrong arguments: two lines for people, a document for programs."""

from __future__ import annotations

import pytest

from tests.cli.programs import Place, error_of

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["session", "get", "--nothing"], "No such option: --nothing"),
        (["session", "list", "--limit", "many"], "Invalid value for '--limit'"),
        (
            ["run", "x", "--docker", "--network", "host"],
            "Invalid value for '--network': 'host' is not one of",
        ),
        (["nothing"], "No such command 'nothing'"),
        (["run"], "a prompt is needed"),
        (["run", "x", "--new", "--session", "s1"], "they exclude each other"),
        (["answer"], "Missing argument 'ANSWER'"),
        (["demo", "--provider", "docker"], "it is for --on HOST:PORT"),
        (["up", "--database-direct-url", "postgresql://x@y/z"], "give it too, or set MOORAGE_DATABASE_URL"),
    ],
)
def test_wrong_arguments_are_a_document_for_programs(
    place: Place, arguments: list[str], message: str
) -> None:
    told = place.moorage(*arguments, "--json")
    assert (told.returncode, told.stdout) == (2, "")
    assert message in error_of(told.stderr)["message"]


def test_what_comes_after_two_dashes_is_no_option(place: Place) -> None:
    told = place.moorage("session", "list", "--nothing", "--", "--json")
    assert told.returncode == 2
    assert "No such option: --nothing" in told.stderr
    assert '"error"' not in told.stderr


def test_paragraphs_of_help_are_as_wide_as_the_terminal(place: Place) -> None:
    told = place.moorage("run", "--help", COLUMNS="80").stdout
    line = " A new session works in this directory; with --docker in a container that has"
    first = next(each for each in told.splitlines() if each.startswith(line))
    assert told.splitlines()[told.splitlines().index(first) + 1].startswith(
        " this directory in it, and nothing"
    )
    below = place.moorage("session", "create", "--help", COLUMNS="80").stdout
    assert max(map(len, below.splitlines())) == 80


def test_help_and_version_are_not_changed_by_it(place: Place) -> None:
    assert place.moorage("run", "--help", "--json").returncode == 0
    assert place.moorage("--version").stdout.startswith("moorage ")
    people = place.moorage("run", "--nothing")
    assert people.returncode == 2
    assert "No such option" in people.stderr
