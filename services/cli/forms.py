"""Forms of agents, filled in on the terminal or by flags."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ACCEPT = "accept"
DECLINE = "decline"
_YES = ("y", "yes", "true", "1", "on")
_NO = ("n", "no", "false", "0", "off")


class Misfit(Exception):
    """A text that is no value of the property."""


@dataclass(frozen=True, slots=True)
class Property:
    """Something to be filled in."""

    name: str
    title: str
    kind: str
    required: bool
    default: Any
    choices: tuple[str, ...]

    def value_of(self, text: str) -> Any:
        """What a text means; Misfit when nothing."""
        match self.kind:
            case "boolean":
                return self._switch(text)
            case "integer" | "number":
                return self._number(text)
            case "array":
                return [item.strip() for item in text.split(",") if item.strip()]
            case _:
                return self._choice(text)

    @property
    def label(self) -> str:
        """What people are asked."""
        hints = ["y or n"] if self.kind == "boolean" else []
        hints += [" | ".join(self.choices)] if self.choices else []
        hints += ["commas between"] if self.kind == "array" else []
        hints += [f"default {self.default}"] if self.default is not None else []
        hints += [] if self.required else ["may be empty"]
        return f"{self.title} ({'; '.join(hints)})" if hints else self.title

    def _switch(self, text: str) -> bool:
        if text.lower() in (*_YES, *_NO):
            return text.lower() in _YES
        raise Misfit("y or n")

    def _number(self, text: str) -> float:
        try:
            return int(text) if self.kind == "integer" else float(text)
        except ValueError as error:
            raise Misfit("a whole number" if self.kind == "integer" else "a number") from error

    def _choice(self, text: str) -> str:
        if self.choices and text.isascii() and text.isdigit() and 0 < int(text) <= len(self.choices):
            return self.choices[int(text) - 1]
        if self.choices and text not in self.choices:
            raise Misfit(f"one of {', '.join(self.choices)}")
        return text


def properties_of(schema: str) -> list[Property]:
    """What a form asks for."""
    parsed = json.loads(schema or "{}")
    required = parsed.get("required") or []
    return [
        Property(
            name=name,
            title=str(asked.get("title") or name),
            kind=str(asked.get("type", "string")),
            required=name in required,
            default=asked.get("default"),
            choices=tuple(_choices(asked)),
        )
        for name, asked in (parsed.get("properties") or {}).items()
    ]


def values_of(schema: str, given: Iterable[str]) -> str:
    """JSON from NAME=VALUE texts; Misfit names the one that does not fit."""
    properties = {each.name: each for each in properties_of(schema)}
    values = {}
    for pair in given:
        name, separator, text = pair.partition("=")
        if not separator or name not in properties:
            known = ", ".join(properties)
            raise Misfit(f"{pair} is not NAME=VALUE with one of {known}")
        values[name] = _fitting(properties[name], text)
    return json.dumps(values)


async def filled_in(schema: str, ask: Callable[[str], Awaitable[str]], tell: Callable[[str], None]) -> str:
    """JSON of what is typed for each property; asks again until it fits."""
    values = {}
    for asked in properties_of(schema):
        while True:
            text = (await ask(f"{asked.label}: ")).strip()
            if not text and asked.default is not None:
                values[asked.name] = asked.default
                break
            if not text and not asked.required:
                break
            if not text:
                tell("it has to be filled in")
                continue
            try:
                values[asked.name] = asked.value_of(text)
            except Misfit as misfit:
                tell(f"it has to be {misfit}")
            else:
                break
    return json.dumps(values)


def _fitting(asked: Property, text: str) -> Any:
    try:
        return asked.value_of(text)
    except Misfit as misfit:
        raise Misfit(f"{asked.name} has to be {misfit}") from misfit


def _choices(schema: Mapping[str, Any]) -> list[str]:
    items = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(items, dict):
        return []
    titled = items.get("oneOf") or items.get("anyOf") or []
    return [str(each) for each in items.get("enum") or [choice.get("const") for choice in titled]]
