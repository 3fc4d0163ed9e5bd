"""Races use the neighbours of the session service."""

from __future__ import annotations

from tests.session.conftest import owner_address, places, root

__all__ = ["owner_address", "places", "root"]
