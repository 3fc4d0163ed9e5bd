"""`python -m services.session`: one replica of the session service."""

from __future__ import annotations

from services.common.process import run_service
from services.common.settings import load_settings
from services.session.config import SessionSettings
from services.session.server import NAME, build


def main() -> None:
    """Read the settings and serve until asked to stop."""
    settings = load_settings(SessionSettings)
    run_service(NAME, settings, lambda: build(settings).serve())


if __name__ == "__main__":
    main()
