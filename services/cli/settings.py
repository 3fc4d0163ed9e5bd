"""Where the command line finds its session service, and as which project it calls it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.cli.state import find_running

DEFAULT_ADDRESS = "127.0.0.1:7801"


class ClientSettings(BaseSettings):
    """Environment of every command that calls the session service."""

    model_config = SettingsConfigDict(env_prefix="MOORAGE_", extra="ignore", frozen=True)

    address: str = Field("", description="HOST:PORT of the session service")
    project: str = Field("default", description="the project to act in")

    def target(self, directory: Path) -> str:
        """The address to call: the setting's, else that of the `moorage up` around `directory`."""
        if self.address:
            return self.address
        running = find_running(directory)
        return running.session if running else DEFAULT_ADDRESS
