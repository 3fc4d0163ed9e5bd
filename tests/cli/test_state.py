"""How commands find the `up` that serves a directory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.app import Context
from services.cli.output import Output
from services.cli.state import (
    AlreadyRunning,
    NoState,
    Running,
    announced,
    find_running,
    only_one,
    state_directory,
)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's state is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def running() -> Iterator[Running]:
    """An `up` of /srv/app."""
    running = Running(1, "/srv/app", "/logs", *(f"127.0.0.1:{port}" for port in range(1, 6)))
    state = state_directory(Path(running.root))
    with only_one(state), announced(state, running):
        yield running


@pytest.mark.parametrize("directory", ["/srv/app", "/srv/app/deep/down"])
def test_it_is_found_from_its_directory_and_below(running: Running, directory: str) -> None:
    assert find_running(Path(directory)) == running


@pytest.mark.parametrize("directory", ["/srv", "/srv/app2", "/"])
def test_it_is_not_found_from_elsewhere(running: Running, directory: str) -> None:
    assert find_running(Path(directory)) is None


def test_the_nearest_one_is_found(running: Running) -> None:
    inner = Running(2, "/srv/app/inner", "/logs", *(f"127.0.0.1:{port}" for port in range(6, 11)))
    state = state_directory(Path(inner.root))
    with only_one(state), announced(state, inner):
        assert find_running(Path("/srv/app/inner/x")) == inner
        assert find_running(Path("/srv/app/x")) == running
    assert find_running(Path("/srv/app/inner/x")) == running


def test_what_a_killed_one_left_is_neither_believed_nor_in_the_way(running: Running) -> None:
    root = Path("/srv/killed")
    state = state_directory(root)
    state.mkdir()
    (state / "up.lock").touch()
    with announced(state, running):
        assert find_running(root) is None
        with only_one(state):
            assert find_running(root) is None


def test_a_second_one_is_told_of_the_first(running: Running) -> None:
    with (
        pytest.raises(AlreadyRunning, match=f"process 1, serving clients on {running.session}"),
        only_one(state_directory(Path(running.root))),
    ):
        pytest.fail("two at once")


def test_looking_for_one_does_not_hinder_one_that_starts() -> None:
    root = Path("/srv/looked-for")
    state = state_directory(root)
    state.mkdir(parents=True)
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            (state / "up.json").touch()  # else there is nothing to look at
            find_running(root)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            with only_one(state):
                pass
    finally:
        ended.set()
        looking.join()


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense"])
def test_an_announcement_of_another_version_is_passed_over(text: str) -> None:
    state = state_directory(Path("/srv/newer"))
    with only_one(state):
        (state / "up.json").write_text(text)
        assert find_running(Path("/srv/newer")) is None


def test_directories_with_the_same_name_are_kept_apart(state_home: Path) -> None:
    first, second = state_directory(Path("/a/work")), state_directory(Path("/b/work"))
    assert first != second
    assert first.parent == second.parent == state_home / "moorage"


def test_a_user_without_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(NoState):
        state_directory(Path("/srv"))


def test_the_address_is_the_named_one_else_the_one_found_else_the_default(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guessed, named = Context(Output(), "", "default"), Context(Output(), "host:1", "default")
    assert (guessed.target, guessed.is_guess) == ("127.0.0.1:7801", True)
    assert (named.target, named.is_guess) == ("host:1", False)
    here = state_directory(tmp_path)
    with only_one(here), announced(here, running):
        assert (guessed.target, guessed.is_guess) == (running.session, False)
