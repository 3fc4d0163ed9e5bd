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


def check_wishes(inherit: Sequence[str], declared: Mapping[str, str], field: str = "start") -> Wishes:
    """What a caller asks for in the message `field`, if it can be; InvalidArgument."""
    return Wishes(
        tuple(_check_inherited(name, field) for name in inherit),
        {
            _check_name(name, field): check_text(_named(name, field), value)
            for name, value in declared.items()
        },
    )


def _check_inherited(name: str, field: str) -> str:
    if name.startswith(_PRIVATE):
        raise InvalidArgument.of(
            f"{field}.inherit_environment", f"{name} is a setting of the instance, not to be passed on"
        )
    return name


def _check_name(name: str, field: str) -> str:
    if not name or "=" in name or name == VARIABLE:
        raise InvalidArgument.of(_named(name, field), "is not a name that a variable of a command can have")
    return check_text(_named(name, field), name)


def _named(name: str, field: str) -> str:
    return f"{field}.environment[{name}]"
