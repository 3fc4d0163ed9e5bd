"""Profiles: the built-in ones, those of a directory, and files that are not right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.runner.profiles import INHERITED, ProfileError, load_profiles, resolve_command

GOOD = """
name = "mine"
description = "My own"
command = ["my-agent", "--acp", "{python}", "{{literally}}"]
network = "required"
inherit_environment = ["PATH", "MY_TOKEN"]
environment = { MODE = "quiet" }
install = "npm install my-agent"
login = "my-agent login"
"""


def write(directory: Path, text: str, name: str = "mine") -> Path:
    file = directory / f"{name}.toml"
    file.write_text(text)
    return file


def test_the_demo_agent_is_built_in_and_its_command_runs() -> None:
    demo = load_profiles()["demo"]
    assert (demo.network, demo.inherit_environment) == ("none", INHERITED)
    ended = subprocess.run(resolve_command(demo), input=b"", timeout=30)
    assert ended.returncode == 0


def test_in_a_container_the_demo_agent_is_a_program_of_the_image() -> None:
    assert resolve_command(load_profiles()["demo"], in_container=True) == ["moorage-demo-agent"]


def test_without_a_command_for_containers_the_other_one_is_used(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    mine = load_profiles(tmp_path)["mine"]
    assert resolve_command(mine, in_container=True) == resolve_command(mine)
    write(tmp_path, f'{GOOD}container_command = ["there", "{{python}}"]\n')
    mine = load_profiles(tmp_path)["mine"]
    assert resolve_command(mine, in_container=True) == ["there", sys.executable]
    assert resolve_command(mine)[0] == "my-agent"


def test_a_directory_adds_profiles_and_replaces_built_in_ones(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD.replace("mine", "demo"), "demo")
    (tmp_path / "README.md").write_text("no profile")
    profiles = load_profiles(tmp_path)
    assert profiles["demo"].description == "My own"
    mine = profiles["mine"]
    assert resolve_command(mine) == ["my-agent", "--acp", sys.executable, "{literally}"]
    assert mine.inherit_environment == ("PATH", "MY_TOKEN")
    assert mine.environment == {"MODE": "quiet"}
    assert (mine.network, mine.install, mine.login) == ("required", "npm install my-agent", "my-agent login")


@pytest.mark.parametrize(
    ("old", "new", "field", "description"),
    [
        ('name = "mine"\n', "", "name", "Field required"),
        ('"mine"', '"Not A Name"', "name", "should match pattern"),
        ('"mine"', '"other"', "name", "must be the file's name: mine"),
        ('"required"', '"sometimes"', "network", "'none' or 'required'"),
        ('["my-agent", "--acp", "{python}", "{{literally}}"]', "[]", "command", "at least 1 item"),
        ("{python}", "{perl}", "command.2", "{perl} is no placeholder; known are {python}, {demo_agent}"),
        ("{python}", "{python.real}", "command.2", "is no placeholder"),
        ("{python}", "{", "command.2", "'{'"),
        ('"MY_TOKEN"', '"MY TOKEN"', "inherit_environment.1", "should match pattern"),
        ('"quiet"', "5", "environment.MODE", "valid string"),
        ("install =", "instal =", "instal", "Extra inputs"),
        ("network =", "network", "", "at line 5"),
    ],
)
def test_a_bad_file_is_named_with_its_field(
    tmp_path: Path, old: str, new: str, field: str, description: str
) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ProfileError) as error:
        load_profiles(tmp_path)
    assert (error.value.file, error.value.field) == (file, field)
    assert description in error.value.description
    # As pydantic begins what a check of ours says.
    assert "Value error" not in error.value.description
    assert str(error.value).startswith(f"{file}: {field}")


def test_a_file_that_is_no_text_and_a_directory_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="mine.toml: .*utf-8"):
        load_profiles(tmp_path)
    with pytest.raises(ProfileError, match="missing: cannot be listed: No such file"):
        load_profiles(tmp_path / "missing")
