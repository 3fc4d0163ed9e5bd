"""`python -m services.runner`: one runner."""

from __future__ import annotations

from services.common.process import run_service
from services.common.settings import load_settings
from services.runner.config import RunnerSettings
from services.runner.server import NAME, build


async def _serve(settings: RunnerSettings) -> None:
    await build(settings).serve()


def main() -> None:
    """Read the settings and serve until asked to stop."""
    settings = load_settings(RunnerSettings)
    run_service(NAME, settings, lambda: _serve(settings))


if __name__ == "__main__":
    main()
