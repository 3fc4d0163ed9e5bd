"""Agent profiles: how each kind of agent is started, from TOML files (T5)."""

from __future__ import annotations

import string
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from services.common.validation import in_own_words

BUILT_IN: Final = Path(__file__).with_name("profiles")
DEMO_AGENT: Final = Path(__file__).with_name("agents") / "demo"
# What a process needs to find programs, its user's settings and a place for files, and no more.
INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TMPDIR",
    "TZ",
)


class ProfileError(Exception):
    """A profile's file cannot be used."""

    def __init__(self, file: Path, field: str, description: str) -> None:
        """`field` is empty where the whole file is meant."""
        where = f"{file}: {field}" if field else str(file)
        super().__init__(f"{where}: {description}")
        self.file = file
        self.field = field
        self.description = description


def _known_placeholders(argument: str) -> str:
    for _, name, _, _ in string.Formatter().parse(argument):
        if name is not None and name not in _placeholders():
            known = ", ".join(f"{{{known}}}" for known in _placeholders())
            raise ValueError(f"{{{name}}} is no placeholder; known are {known}")
    return argument


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Argument = Annotated[str, AfterValidator(_known_placeholders)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Profile(BaseModel):
    """One kind of agent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    description: str
    # In the words of `{python}`, this interpreter, and `{demo_agent}`, the built-in agent.
    command: tuple[Argument, ...] = Field(min_length=1)
    # In a container nothing of this machine is there; default: `command`.
    container_command: tuple[Argument, ...] = ()
    network: Literal["none", "required"]
    # Variables taken over from where the agent is started; all others are absent.
    inherit_environment: tuple[VariableName, ...] = INHERITED
    # Variables set besides.
    environment: Mapping[VariableName, str] = {}
    # For people, when the command is missing and when the agent wants a login.
    install: str = ""
    login: str = ""


def load_profiles(directory: Path | None = None) -> dict[str, Profile]:
    """The built-in profiles and those of the directory, which win; ProfileError for a file that is not right."""
    files = [*_toml_files(BUILT_IN), *(_toml_files(directory) if directory else ())]
    return {profile.name: profile for profile in map(load_profile, files)}


def load_profile(file: Path) -> Profile:
    """The profile of a file that bears its name."""
    try:
        profile = Profile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        raise ProfileError(file, ".".join(map(str, first["loc"])), in_own_words(first["msg"])) from error
    except (OSError, ValueError) as error:
        raise ProfileError(file, "", str(error)) from error
    if profile.name != file.stem:
        raise ProfileError(file, "name", f"must be the file's name: {file.stem}")
    return profile


def resolve_command(profile: Profile, *, in_container: bool = False) -> list[str]:
    """The command with its placeholders filled, for this machine or for a container's image."""
    command = profile.container_command if in_container else ()
    return [argument.format(**_placeholders()) for argument in command or profile.command]


def _toml_files(directory: Path) -> Iterator[Path]:
    try:
        yield from sorted(file for file in directory.iterdir() if file.suffix == ".toml")
    except OSError as error:
        raise ProfileError(directory, "", f"cannot be listed: {error.strerror}") from error


def _placeholders() -> dict[str, str]:
    return {"python": sys.executable, "demo_agent": str(DEMO_AGENT)}
