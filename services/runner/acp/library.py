"""What we take of the protocol's library: its messages as models, and the names of its methods.

Everything of this service imports them from here, so that they are imported in one way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

import pydantic
from pydantic import ConfigDict

__all__ = ["AGENT_METHODS", "CLIENT_METHODS", "PROTOCOL_VERSION", "schema"]


@contextlib.contextmanager
def _light_models() -> Iterator[None]:
    """Models defined in the block are built at their first use, and their docstrings are not looked for.

    There are almost three hundred, of which a runner uses few: building all of them, and reading the
    source of each for descriptions that nobody asks for, took a third of a runner's start.
    """
    made = pydantic.ConfigDict

    def light(**values: object) -> ConfigDict:
        return cast("ConfigDict", {**values, "defer_build": True, "use_attribute_docstrings": False})

    pydantic.ConfigDict = light  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        pydantic.ConfigDict = made  # type: ignore[misc]


with _light_models():
    from acp import schema
    from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
