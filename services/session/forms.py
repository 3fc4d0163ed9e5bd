"""Forms: questions that want values, by the part of JSON Schema that agents may use (T6).

What a schema says beyond types, choices and bounds (patterns, formats) is left to the agent:
its patterns are not run here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.common.errors import InvalidArgument
from services.common.validation import check_size

MAX_VALUES: Final = 64 * 1024
_MAX_PROPERTIES: Final = 64

Schema = Mapping[str, Any]


def check_schema(field: str, text: str) -> None:
    """Whether values can be asked for by it: an object with properties. Else InvalidArgument."""
    schema = _object(text)
    properties = schema.get("properties", {}) if schema is not None else None
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        raise InvalidArgument.of(field, "must be a JSON Schema of an object")
    check_size(f"{field}.properties", properties, _MAX_PROPERTIES, "properties")


def check_values(field: str, schema_text: str, text: str) -> str:
    """The values, as they are stored; InvalidArgument names the one that does not fit."""
    check_size(field, text, MAX_VALUES)
    values, schema = _object(text or "{}"), _object(schema_text) or {}
    if values is None:
        raise InvalidArgument.of(field, "must be a JSON object")
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    for name in _required(schema):
        if name not in values:
            raise InvalidArgument.of(f"{field}.{name}", "is required")
    for name, value in values.items():
        if name not in properties:
            raise InvalidArgument.of(field, f"{name[:80]!r} is not asked for")
        if fault := _fault(properties[name], value):
            raise InvalidArgument.of(f"{field}.{name}", fault)
    # Escapes keep out what a database does not take.
    return json.dumps(values)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _fault(schema: Schema, value: object) -> str:
    """Why the value does not fit; empty when it does, or when nothing is known about its kind."""
    judge = _JUDGES.get(str(schema.get("type", "")))
    return judge(schema, value) if judge else ""


def _text_fault(schema: Schema, value: object) -> str:
    if not isinstance(value, str):
        return "must be a text"
    choices = _choices(schema)
    if choices and value not in choices:
        return f"must be one of {', '.join(choices)}"
    return _bounds_fault(schema, len(value), "minLength", "maxLength", "characters")


def _number_fault(schema: Schema, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    return _bounds_fault(schema, value, "minimum", "maximum", "")


def _integer_fault(schema: Schema, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "must be a whole number"
    return _number_fault(schema, value)


def _switch_fault(schema: Schema, value: object) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _list_fault(schema: Schema, value: object) -> str:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return "must be a list of texts"
    items = schema.get("items")
    choices = _choices(items) if isinstance(items, dict) else []
    if choices and not set(value) <= set(choices):
        return f"must hold only {', '.join(choices)}"
    return _bounds_fault(schema, len(value), "minItems", "maxItems", "items")


def _bounds_fault(schema: Schema, size: float, least: str, most: str, unit: str) -> str:
    lower, upper = _bound(schema.get(least)), _bound(schema.get(most))
    if lower is not None and size < lower:
        return f"must be at least {lower:g} {unit}".rstrip()
    if upper is not None and size > upper:
        return f"must be at most {upper:g} {unit}".rstrip()
    return ""


def _bound(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _choices(schema: Schema) -> list[str]:
    """From `enum`, or from the constants of `oneOf` or `anyOf`."""
    plain = schema.get("enum")
    titled = schema.get("oneOf") or schema.get("anyOf") or []
    found = (
        plain if isinstance(plain, list) else [each.get("const") for each in titled if isinstance(each, dict)]
    )
    return [choice for choice in found if isinstance(choice, str)]


_JUDGES: Final[Mapping[str, Callable[[Schema, object], str]]] = {
    "string": _text_fault,
    "number": _number_fault,
    "integer": _integer_fault,
    "boolean": _switch_fault,
    "array": _list_fault,
}
