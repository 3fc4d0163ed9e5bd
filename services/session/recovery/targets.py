"""Sessions that the session service has to do something about."""

from __future__ import annotations

from dataclasses import dataclass

from services.session.journal.rules import SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A session, the workspace that its agent works on, and the turn that it is about, if it is about one."""

    key: SessionKey
    workspace_id: str
    turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTurn(Target):
    """A turn that a holder drives, or drove when it was last heard of; by which token and attempt."""

    token: int
    attempt_id: str
