"""A service's refusal, for people and for programs, and the exit code it becomes."""

from __future__ import annotations

import re
from typing import Any

import grpc

from services.cli.exits import Exit
from services.common.errors import FieldViolation, MoorageError
from services.common.status import DETAILS_KEY, from_rpc_error

_HINTS = {
    "TURN_IN_PROGRESS": "`moorage watch {session_id}` shows it; "
    "--if-busy enqueue waits for its end, --if-busy interrupt stops it",
    "QUEUE_FULL": "`moorage session get {session_id}` shows them, `moorage stop --turn` withdraws one",
    "PATH_OUTSIDE_ROOT": "agents may work below the directory of `moorage up` only; start one here",
    "NETWORK_REQUIRED": "`--network bridge` gives it one",
    "PROVIDER_UNAVAILABLE": "`moorage workspace providers` tells what there is; "
    "`moorage up --docker-image IMAGE` offers containers",
}
_OWN = "`run --docker --empty` or `session create --docker` makes one of its own, --git and --archive put something in it"
# Of services that no `moorage up` around this directory has started: what they offer is for others to say.
_ELSEWHERE = {
    "PATH_OUTSIDE_ROOT": f"the services at {{address}} give agents no other directories; {_OWN}",
    "PROVIDER_UNAVAILABLE": "`moorage workspace providers` tells what the services at {address} make",
    "BINDING_REQUIRED": "the services at {address} have no directory for it: `--docker` has a container made, "
    "`--directory` names a directory where they run",
}
_FIELDS_ELSEWHERE = {
    "binding.local.directory": f"the services at {{address}} cannot give an agent this directory; {_OWN}",
    "provision.source.path.directory": f"the services at {{address}} cannot give a container this directory; {_OWN}",
}
# Of a provider that makes none there.
_INSTEAD = {"local": "`--docker` asks for a container; "}
_ANSWER = "`moorage session get {session_id}` shows the question it waits with, `moorage answer` answers it; "
_EXITS = {grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE, grpc.StatusCode.UNAVAILABLE: Exit.CUT}


_PEER = re.compile(r"ipv[46]:(\S+:\d+): .*[Cc]onnect")


class Refusal:
    """What a call failed with. Without a reason it is not the service's own answer."""

    def __init__(self, error: grpc.aio.AioRpcError, elsewhere: str = "") -> None:
        """Read the details. `elsewhere` is the address of services that no `up` around here has started."""
        self._elsewhere = elsewhere
        told = from_rpc_error(error)
        answered = any(key == DETAILS_KEY for key, _ in error.trailing_metadata() or ())
        self.code = error.code()
        self.reason = told.reason_name if answered else ""
        self.message = (answered and str(told)) or _unanswered(told)
        self.metadata = told.metadata
        self.violations = told.violations

    @property
    def exit(self) -> Exit:
        """The exit code of a command that was refused."""
        return _EXITS.get(self.code, Exit.FAILED)

    @property
    def hint(self) -> str:
        """What to do next, if that is known."""
        asks = self.reason == "TURN_IN_PROGRESS" and self.metadata.get("state") == "AWAITING_INPUT"
        hint = (self._elsewhere and self._hint_elsewhere()) or _HINTS.get(self.reason, "")
        known = _Blank({**self.metadata, "address": self._elsewhere})
        return (f"{_ANSWER}{hint}" if asks else hint).format_map(known)

    def _hint_elsewhere(self) -> str:
        if hint := _ELSEWHERE.get(self.reason):
            return _INSTEAD.get(self.metadata.get("provider", ""), "") + hint
        if self.reason != "INVALID_FIELD":
            return ""
        of_fields = (_FIELDS_ELSEWHERE.get(violation.field, "") for violation in self.violations)
        return next(filter(None, of_fields), "")

    def line(self) -> str:
        """The message with what it does not say itself: further fields, code, reason."""
        names = ", ".join(filter(None, (self.code.name, self.reason)))
        fields = [_told(violation) for violation in self.violations if violation.field not in self.message]
        return f"{'; '.join((self.message, *fields))} ({names})"

    def document(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "code": self.code.name,
            "reason": self.reason,
            "message": self.message,
            "metadata": self.metadata,
            "violations": [
                {"field": violation.field, "description": violation.description}
                for violation in self.violations
            ],
        }


def _unanswered(told: MoorageError) -> str:
    """Not the transport's words, where they only say that nobody is there."""
    found = _PEER.search(str(told))
    return f"nothing answers at {found[1]}" if found else str(told) or "the call failed"


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def _told(violation: FieldViolation) -> str:
    return f"{violation.field}: {violation.description}"
