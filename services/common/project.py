"""The project of a call, from its metadata until callers have credentials."""

from __future__ import annotations

from typing import Any, Final

import grpc

from services.common.errors import InvalidArgument
from services.common.validation import DEFAULT_PROJECT, check_project

PROJECT_KEY: Final = "moorage-project"


def project_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The metadata key `moorage-project`, `default` without; InvalidArgument when malformed."""
    metadata = context.invocation_metadata() or ()
    values = {value for key, value in metadata if key == PROJECT_KEY}
    if not values:
        return DEFAULT_PROJECT
    if len(values) > 1:
        raise InvalidArgument.of(PROJECT_KEY, "is given more than once")
    return check_project(str(values.pop()), PROJECT_KEY)
