"""What a provider finds outside the database that carries our labels."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Thing(enum.StrEnum):
    """What it is. A directory may hold the only copy of somebody's work; a container does not."""

    CONTAINER = "container"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Found:
    """Something labelled as made by this instance, for this deployment.

    `resource` is the provider's own name of it: a container's id, a directory's path. Things of
    all generations share what has none. `usable` is whether it shows that its workspace works.
    """

    project: str
    workspace_id: str
    generation: int | None
    thing: Thing
    resource: str
    usable: bool

    @property
    def key(self) -> tuple[str, str]:
        """Names the workspace it is labelled with."""
        return self.project, self.workspace_id
