"""Whose a container is: its labels, and the name that follows from them (W1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

from services.workspace.workspaces import Workspace

PREFIX: Final = "io.moorage."
_LONGEST_PART: Final = 40
_DIGEST: Final = 16
# In figures; the database's numbers have no more.
_LONGEST_NUMBER: Final = 18


@dataclass(frozen=True, slots=True)
class Labels:
    """Of one container."""

    deployment: str
    instance: str
    project: str
    workspace: str
    generation: int

    @classmethod
    def of(cls, workspace: Workspace, deployment: str) -> Self:
        """What a workspace's container must say."""
        return cls(
            deployment,
            workspace.instance_id,
            workspace.project,
            workspace.workspace_id,
            workspace.generation,
        )

    def to_engine(self) -> dict[str, str]:
        """As the engine keeps them."""
        return {f"{PREFIX}{name}": str(value) for name, value in asdict(self).items()}

    def are(self, labels: Mapping[str, str] | None) -> bool:
        """Whether a container says exactly this; it may say other things too."""
        return self.to_engine().items() <= (labels or {}).items()

    @property
    def name(self) -> str:
        """The container's: for people at its beginning, unique by its end."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:_DIGEST]
        parts = (self.instance, self.project, self.workspace)
        return "-".join(("moorage", *(part[:_LONGEST_PART] for part in parts), digest))


def named(labels: Mapping[str, str], name: str) -> str:
    """What a container says, whoever made it; empty where no row can say the same."""
    said = labels.get(f"{PREFIX}{name}", "")
    return "" if "\0" in said else said


def generation_of(labels: Mapping[str, str]) -> int:
    """The generation that a container says; 0, which no row has, where it says none."""
    said = named(labels, "generation")
    return int(said) if said.isdecimal() and len(said) <= _LONGEST_NUMBER else 0


def selecting(deployment: str, instance: str, **more: str) -> dict[str, list[str]]:
    """A filter of the engine's lists: all that this instance made for this deployment, of all generations."""
    wanted = {"deployment": deployment, "instance": instance, **more}
    return {"label": [f"{PREFIX}{name}={value}" for name, value in wanted.items()]}
