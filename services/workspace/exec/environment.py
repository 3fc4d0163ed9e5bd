"""The environment of a command: what it declares, what it inherits by name, and nothing else (T5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from services.common.errors import InvalidArgument
from services.common.validation import check_text
from services.workspace.exec.marker import VARIABLE

# This service's own settings, secrets among them.
_PRIVATE: Final = "MOORAGE_"


class OwnEnvironment:
    """The instance's variables that a command may inherit, as they were at its start."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """All variables of the process."""
        self._variables = {name: value for name, value in variables.items() if not name.startswith(_PRIVATE)}

    @property
    def names(self) -> list[str]:
        """What can be named."""
        return sorted(self._variables)

    def build(self, inherit: Sequence[str], declared: Mapping[str, str]) -> dict[str, str]:
        """The command's variables; a declared one wins. What the instance does not have stays absent."""
        inherited = {
            name: self._variables[name] for name in map(_check_inherited, inherit) if name in self._variables
        }
        return inherited | {
            _check_name(name): check_text(_field(name), value) for name, value in declared.items()
        }


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
