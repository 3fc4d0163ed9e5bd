"""`python -m services.workspace`: one instance of the workspace service."""

from __future__ import annotations

from services.common.process import run_service
from services.common.settings import load_settings
from services.workspace.config import WorkspaceSettings
from services.workspace.server import NAME, build


def main() -> None:
    """Read the settings and serve until asked to stop."""
    settings = load_settings(WorkspaceSettings)
    run_service(NAME, settings, lambda: _serve(settings))


async def _serve(settings: WorkspaceSettings) -> None:
    await build(settings).serve()


if __name__ == "__main__":
    main()
