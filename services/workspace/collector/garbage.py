"""What should not be there, or is not there and should: the rules, without any store or provider."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.workspace.providers.found import Found, Thing
from services.workspace.workspaces import WorkspaceState

_GONE: Final = {
    WorkspaceState.DELETED: "its workspace is deleted",
    WorkspaceState.FAILED: "its workspace could not be made",
}


class GarbageKind(enum.StrEnum):
    """What is wrong with it."""

    ORPHAN = "ORPHAN"
    GHOST = "GHOST"
    UNCLAIMED = "UNCLAIMED"
    EXPIRED = "EXPIRED"
    IDLE = "IDLE"


@dataclass(frozen=True, slots=True)
class Garbage:
    """One finding; `done` says whether it was dealt with."""

    kind: GarbageKind
    provider: str
    project: str
    workspace_id: str
    resource: str
    cause: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass found; `unasked` are the providers that could not be asked, with the cause."""

    garbage: tuple[Garbage, ...]
    unasked: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is stored about the workspace that something is labelled with."""

    state: WorkspaceState
    generation: int


def cause_to_remove(found: Found, standing: Standing | None) -> str:
    """Why nothing that is stored can need it any more; empty when something may.

    Whatever it says stays true: no row is deleted, none comes back from FAILED, LOST or DELETED, no
    generation goes back. So it may be acted upon without a lock.
    """
    if standing is None:
        return "no workspace is stored for it"
    if standing.state in _GONE:
        return _GONE[standing.state]
    if standing.state is WorkspaceState.LOST and found.thing is Thing.CONTAINER:
        return "its workspace is lost"
    if found.generation is not None and found.generation < standing.generation:
        return f"it is of generation {found.generation}, which {standing.generation} has replaced"
    return ""
