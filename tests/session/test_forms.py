"""Values against the schema of a form, and what is no schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.common.errors import InvalidArgument
from services.session.forms import MAX_VALUES, check_schema, check_values

TITLED = [{"const": "low", "title": "Low"}, {"const": "high", "title": "High"}]
PROPERTIES = {
    "name": {"type": "string", "minLength": 2, "maxLength": 4},
    "level": {"type": "string", "oneOf": TITLED},
    "colour": {"type": "string", "enum": ["red", "blue"]},
    "count": {"type": "integer", "minimum": 1, "maximum": 9},
    "share": {"type": "number", "maximum": 1},
    "loud": {"type": "boolean"},
    "tags": {"type": "array", "minItems": 1, "items": {"anyOf": TITLED}},
    "future": {"type": "hologram"},
}
SCHEMA = json.dumps({"type": "object", "properties": PROPERTIES, "required": ["name"]})
GOOD: dict[str, Any] = {
    "name": "Ann",
    "level": "low",
    "colour": "red",
    "count": 9,
    "share": 0.5,
    "loud": True,
    "tags": ["low", "high"],
    "future": {"any": ["thing"]},
}


def test_values_that_fit_are_stored_as_they_are() -> None:
    assert json.loads(check_values("values", SCHEMA, json.dumps(GOOD))) == GOOD
    assert json.loads(check_values("values", SCHEMA, '{"name": "A\\u0000"}')) == {"name": "A\0"}
    assert "\0" not in check_values("values", SCHEMA, '{"name": "A\\u0000"}')
    assert check_values("values", "{}", "") == "{}"


@pytest.mark.parametrize(
    ("change", "field", "fault"),
    [
        ({"name": None}, "values.name", "must be a text"),
        ({"name": "A"}, "values.name", "at least 2 characters"),
        ({"name": "Annie"}, "values.name", "at most 4 characters"),
        ({"level": "Low"}, "values.level", "one of low, high"),
        ({"colour": "green"}, "values.colour", "one of red, blue"),
        ({"count": 1.5}, "values.count", "whole number"),
        ({"count": True}, "values.count", "whole number"),
        ({"count": 0}, "values.count", "at least 1"),
        ({"share": "1"}, "values.share", "a number"),
        ({"share": 2}, "values.share", "at most 1"),
        ({"loud": "yes"}, "values.loud", "true or false"),
        ({"tags": "low"}, "values.tags", "a list of texts"),
        ({"tags": []}, "values.tags", "at least 1 items"),
        ({"tags": ["low", "middle"]}, "values.tags", "only low, high"),
        ({"more": 1}, "values", "'more' is not asked for"),
    ],
)
def test_a_value_that_does_not_fit_is_named(change: dict[str, Any], field: str, fault: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_values("values", SCHEMA, json.dumps(GOOD | change))
    [violation] = refused.value.violations
    assert violation.field == field
    assert fault in violation.description


def test_what_is_required_must_be_there() -> None:
    with pytest.raises(InvalidArgument, match=r"values\.name"):
        check_values("values", SCHEMA, "{}")


@pytest.mark.parametrize("text", ["[]", "7", "{", "[" * 100_000, '{"name": "' + "x" * MAX_VALUES + '"}'])
def test_what_is_no_object_or_too_much(text: str) -> None:
    with pytest.raises(InvalidArgument):
        check_values("values", SCHEMA, text)


@pytest.mark.parametrize("text", ["", "[]", '{"properties": []}', '{"properties": {"a": "text"}}'])
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidArgument):
        check_schema("interaction.schema", text)


def test_too_many_properties() -> None:
    properties = {f"p{number}": {"type": "string"} for number in range(65)}
    with pytest.raises(InvalidArgument, match="64"):
        check_schema("interaction.schema", json.dumps({"properties": properties}))
