"""Modes, models and options that an agent offers, read from whatever form it tells them in.

Older agents tell modes and models beside the options, newer ones tell them as options of a category.
What is not understood is left out: it must not cost a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

SWITCH: Final = "boolean"
_SELECT: Final = "select"


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that can be chosen, by the agent's id."""

    id: str
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Option:
    """An option with its value; a switch has no choices, and `true` or `false` as value."""

    id: str
    name: str
    description: str
    category: str
    value: str
    choices: tuple[Choice, ...]
    is_switch: bool

    @property
    def values(self) -> tuple[str, ...]:
        """What it can be set to."""
        return ("true", "false") if self.is_switch else tuple(choice.id for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Selector:
    """Modes or models that are told beside the options."""

    value: str
    choices: tuple[Choice, ...]


_NONE: Final = Selector("", ())


@dataclass(frozen=True, slots=True)
class Offers:
    """All that can be set in a native session, as it stands."""

    modes: Selector = _NONE
    models: Selector = _NONE
    options: tuple[Option, ...] = ()

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Self:
        """From the result of `session/new` or `session/load`."""
        return cls(
            modes=_selector(raw.get("modes"), "currentModeId", "availableModes", "id"),
            models=_selector(raw.get("models"), "currentModelId", "availableModels", "modelId"),
            options=options_of(raw.get("configOptions")),
        )

    @property
    def model(self) -> str:
        """The model in use; empty when not told."""
        option = self.in_category("model")
        return self.models.value or (option.value if option else "")

    def option(self, option_id: str) -> Option | None:
        """By its id."""
        return next((option for option in self.options if option.id == option_id), None)

    def in_category(self, category: str) -> Option | None:
        """The first option of a category."""
        return next((option for option in self.options if option.category == category), None)

    def with_mode(self, mode_id: str) -> Offers:
        """After the mode has changed."""
        return replace(self, modes=replace(self.modes, value=mode_id))

    def with_model(self, model_id: str) -> Offers:
        """After the model has changed."""
        return replace(self, models=replace(self.models, value=model_id))

    def with_options(self, options: tuple[Option, ...]) -> Offers:
        """After options have changed; an agent that told none has them as before."""
        return replace(self, options=options or self.options)


def options_of(raw: object) -> tuple[Option, ...]:
    """From `configOptions`, which comes whole."""
    return tuple(option for item in _objects(raw) if (option := _option(item)))


def _option(raw: dict[str, Any]) -> Option | None:
    option_id, value = raw.get("id"), raw.get("currentValue")
    is_switch = raw.get("type") == SWITCH and isinstance(value, bool)
    if not isinstance(option_id, str) or not (is_switch or raw.get("type") == _SELECT):
        return None
    if is_switch:
        value = "true" if value else "false"
    return Option(
        id=option_id,
        name=_text(raw.get("name")),
        description=_text(raw.get("description")),
        category=_text(raw.get("category")),
        value=_text(value),
        choices=() if is_switch else tuple(_choices(raw.get("options"), "value")),
        is_switch=is_switch,
    )


def _selector(raw: object, current: str, available: str, key: str) -> Selector:
    if not isinstance(raw, dict):
        return _NONE
    return Selector(_text(raw.get(current)), tuple(_choices(raw.get(available), key)))


def _choices(raw: object, key: str) -> Iterator[Choice]:
    for item in _objects(raw):
        if isinstance(item.get(key), str):
            yield Choice(item[key], _text(item.get("name")), _text(item.get("description")))
        else:
            # A group of them.
            yield from _choices(item.get("options"), key)


def _objects(raw: object) -> list[dict[str, Any]]:
    return [item for item in raw if isinstance(item, dict)] if isinstance(raw, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
