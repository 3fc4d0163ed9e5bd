"""The environment of a command: what it declares, what it inherits by name, and nothing else (T5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.common.errors import InvalidArgument
from services.common.validation import check_text
from services.workspace.exec.marker import VARIABLE

# This service's own settings, secrets among them.
_PRIVATE: Final = "MOORAGE_"


def heritable(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a command may inherit."""
    return {name: value for name, value in variables.items() if not name.startswith(_PRIVATE)}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a command's environment is to be: names to inherit, and variables, which win."""

    inherited: tuple[str, ...]
    declared: dict[str, str]

    def out_of(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The command's variables. What there is not to inherit stays absent."""
        return {name: variables[name] for name in self.inherited if name in variables} | self.declared


def check_wishes(inherit: Sequence[str], declared: Mapping[str, str]) -> Wishes:
    """What a caller asks for, if it can be; InvalidArgument."""
    return Wishes(
        tuple(map(_check_inherited, inherit)),
        {_check_name(name): check_text(_field(name), value) for name, value in declared.items()},
    )


def _check_inherited(name: str) -> str:
    if name.startswith(_PRIVATE):
        raise InvalidArgument.of(
            "start.inherit_environment", f"{name} is a setting of the instance, not to be passed on"
        )
    return name


def _check_name(name: str) -> str:
    if not name or "=" in name or name == VARIABLE:
        raise InvalidArgument.of(_field(name), "is not a name that a variable of a command can have")
    return check_text(_field(name), name)


def _field(name: str) -> str:
    return f"start.environment[{name}]"
