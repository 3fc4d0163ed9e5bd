"""`python -m services.owner`: one replica of the owner service."""

from __future__ import annotations

from services.common.process import run_service
from services.common.settings import load_settings
from services.owner.config import OwnerSettings
from services.owner.server import NAME, build


def main() -> None:
    """Read the settings and serve until asked to stop."""
    settings = load_settings(OwnerSettings)
    run_service(NAME, settings, lambda: build(settings).serve())


if __name__ == "__main__":
    main()
