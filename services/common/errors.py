"""The error vocabulary: one class per kind, free of gRPC; `status.py` maps kinds to codes.

    MoorageError
    ├── InvalidArgument        the request can never succeed as it is; names the fields
    ├── NotFound               no such thing, or not in this project
    ├── AlreadyExists          the name is taken
    ├── FailedPrecondition     the state does not allow it; look at the state first
    ├── Aborted                a newer version won; start again at a higher level
    ├── OutOfRange             past the end of what can be read
    ├── ResourceExhausted      a limit is reached
    ├── PermissionDenied       the caller may not
    ├── Unauthenticated        the caller did not say who it is
    ├── Unavailable            try again
    │   ├── DependencyUnavailable
    │   └── ShuttingDown
    ├── Cancelled              nobody waits for the answer any more
    ├── DeadlineExceeded       a call that this process made took too long
    └── Internal               a fault of ours or of a service that was called

A concrete error's docstring is its message. Keyword arguments fill the template and are
sent along as metadata, so that no client has to parse a text.
"""

from __future__ import annotations

import enum
import inspect
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, Self

from moorage.common.v1.errors_pb2 import ErrorReason

UNSPECIFIED: Final = "UNSPECIFIED"
_PREFIX: Final = "ERROR_REASON_"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request and what is wrong with it."""

    field: str
    description: str


class MoorageError(Exception):
    """{description}"""

    reason: ErrorReason.ValueType = ErrorReason.ERROR_REASON_UNSPECIFIED
    reason_name: str
    metadata: dict[str, str]
    retry_after: float | None
    violations: tuple[FieldViolation, ...]
    _template: ClassVar[str] = "{description}"

    def __init_subclass__(cls) -> None:
        """Take the message from the docstring, which every error class must have."""
        super().__init_subclass__()
        if not cls.__doc__:
            raise TypeError(f"{cls.__name__} needs a docstring: it is the message")
        cls._template = " ".join(inspect.cleandoc(cls.__doc__).split())

    def __init__(
        self,
        *,
        retry_after: float | None = None,
        violations: tuple[FieldViolation, ...] = (),
        **metadata: object,
    ) -> None:
        """Fill the message; `retry_after` is in seconds."""
        self.metadata = {key: as_text(value) for key, value in metadata.items()}
        self.reason_name = name_of(self.reason)
        self.retry_after = retry_after
        self.violations = violations
        super().__init__(_fill(self._template, self.metadata, type(self)))

    @classmethod
    def received(
        cls,
        message: str,
        *,
        reason_name: str,
        metadata: Mapping[str, str],
        retry_after: float | None = None,
        violations: tuple[FieldViolation, ...] = (),
    ) -> Self:
        """Make the error that another service reported; its reason may be newer than ours."""
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        error.reason = reason_of(reason_name)
        error.reason_name = reason_name
        error.metadata = dict(metadata)
        error.retry_after = retry_after
        error.violations = violations
        return error

    def again(self) -> Self:
        """The same for another caller: one that is raised at many places gathers all their tracebacks."""
        other = self.received(
            str(self),
            reason_name=self.reason_name,
            metadata=self.metadata,
            retry_after=self.retry_after,
            violations=self.violations,
        )
        other.__cause__ = self
        return other


class InvalidArgument(MoorageError):
    """{field}: {description}"""

    reason = ErrorReason.ERROR_REASON_INVALID_FIELD

    @classmethod
    def of(
        cls,
        field: str,
        reason_text: str,
        *,
        reason: ErrorReason.ValueType = ErrorReason.ERROR_REASON_INVALID_FIELD,
    ) -> Self:
        """One bad field, e.g. `InvalidArgument.of("page_size", "must not be negative")`."""
        violations = (FieldViolation(field, reason_text),)
        error = cls(violations=violations, field=field, description=reason_text)
        error.reason, error.reason_name = reason, name_of(reason)
        return error


class NotFound(MoorageError):
    """{description}"""


class AlreadyExists(MoorageError):
    """{description}"""


class FailedPrecondition(MoorageError):
    """{description}"""


class Aborted(MoorageError):
    """{description}"""


class OutOfRange(MoorageError):
    """{description}"""


class ResourceExhausted(MoorageError):
    """{description}"""


class PermissionDenied(MoorageError):
    """{description}"""


class Unauthenticated(MoorageError):
    """{description}"""


class Unavailable(MoorageError):
    """{description}"""

    reason = ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE


class DependencyUnavailable(Unavailable):
    """{dependency} is unavailable: {cause}"""


class ShuttingDown(Unavailable):
    """the service is shutting down"""

    reason = ErrorReason.ERROR_REASON_SHUTTING_DOWN


class Cancelled(MoorageError):
    """the call was cancelled"""

    reason = ErrorReason.ERROR_REASON_CANCELLED


class DeadlineExceeded(MoorageError):
    """{description}"""

    reason = ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE


class Internal(MoorageError):
    """an internal error occurred; its id {error_id} is in the log"""

    reason = ErrorReason.ERROR_REASON_INTERNAL


def name_of(reason: ErrorReason.ValueType) -> str:
    """The reason as ErrorInfo carries it: the enum name without its prefix."""
    return ErrorReason.Name(reason).removeprefix(_PREFIX)


def reason_of(reason_name: str) -> ErrorReason.ValueType:
    """The enum value of a received reason; UNSPECIFIED when this build does not know it."""
    if _PREFIX + reason_name in ErrorReason.keys():  # noqa: SIM118 (an enum wrapper is no dict)
        return ErrorReason.Value(_PREFIX + reason_name)
    return ErrorReason.ERROR_REASON_UNSPECIFIED


def as_text(value: object) -> str:
    """A metadata value as text: times as RFC 3339 in UTC, booleans in lower case."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, enum.Enum):
        return as_text(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _fill(template: str, metadata: Mapping[str, str], owner: type) -> str:
    names = {name for _, name, _, _ in string.Formatter().parse(template) if name}
    if missing := sorted(names - metadata.keys()):
        raise TypeError(f"{owner.__name__} needs the arguments {', '.join(missing)}")
    return template.format_map(metadata)


class StartupRefused(Exception):
    """A process must not run like this; ends it with one line and a code that is not 0."""
