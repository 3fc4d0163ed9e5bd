"""What tables tell about providers of workspaces, in words."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.quantities import told_bytes

# What is left of a narrow terminal beside names.
_ROOM: Final = 60


def rows_of(providers: Iterable[workspace_pb2.Provider]) -> list[tuple[str, str, str]]:
    """A few rows for each; only the first has its name."""
    return [row for provider in providers for row in _rows(provider)]


def limits_in_words(limits: provision_pb2.ResourceLimits) -> str:
    """Those that there are."""
    told = []
    if limits.HasField("cpus"):
        told.append(f"{limits.cpus:g} cpu")
    if limits.HasField("memory_bytes"):
        told.append(told_bytes(limits.memory_bytes))
    if limits.HasField("pids"):
        told.append(f"{limits.pids} processes")
    return ", ".join(told)


def _rows(provider: workspace_pb2.Provider) -> list[tuple[str, str, str]]:
    facts = {
        "makes any": _makes(provider),
        "below": provider.root,
        "images": ", ".join(provider.images),
        "missing": _missing(provider.engine),
        "limits": limits_in_words(provider.limits),
        "engine": _engine(provider.engine),
    }
    lines = [
        (label if not place else "", line)
        for label, value in facts.items()
        for place, line in enumerate(wrap(value, _ROOM, break_long_words=False, break_on_hyphens=False))
    ]
    return [(provider.name if not place else "", *line) for place, line in enumerate(lines)]


def _makes(provider: workspace_pb2.Provider) -> str:
    if cause := provider.unavailable_cause:
        return f"no: {cause}"
    if provider.HasField("engine") and not provider.engine.version:
        return "not known yet"
    return "yes" if provider.enabled else "no"


def _missing(engine: workspace_pb2.Engine) -> str:
    images = ", ".join(engine.missing_images)
    return f"{images}: build or pull on the engine" if images else ""


def _engine(engine: workspace_pb2.Engine) -> str:
    """Empty without one."""
    if not engine.address:
        return ""
    return f"{engine.version or 'does not answer yet,'} at {engine.address}"
