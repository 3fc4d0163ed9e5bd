"""What was found: a verdict and a reason for each thing that an agent should do."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from services.runner.acp.errors import AgentError


class Verdict(enum.StrEnum):
    """Of one check."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check with its verdict; the words say what was seen."""

    check: str
    verdict: Verdict
    words: str


class Wrong(Exception):
    """The agent does not do what it should."""


class NotTried(Exception):
    """Whether the agent does it cannot be seen here."""


@dataclass(slots=True)
class Findings:
    """Collects, and tells each as it comes."""

    tell: Callable[[Finding], None]
    found: list[Finding] = field(default_factory=list)

    def add(self, check: str, verdict: Verdict, words: str) -> None:
        """One more."""
        finding = Finding(check, verdict, words)
        self.found.append(finding)
        self.tell(finding)

    def fault(self, check: str, error: Exception) -> None:
        """What a check came to that did not succeed."""
        verdict = Verdict.NOT_TRIED if isinstance(error, NotTried) else Verdict.WRONG
        self.add(check, verdict, str(error) or type(error).__name__)

    @property
    def faultless(self) -> bool:
        """Whether nothing was wrong."""
        return all(finding.verdict is not Verdict.WRONG for finding in self.found)


FAULTS = (Wrong, NotTried, AgentError, OSError)
