"""Names of signals."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """The name of a signal, also of one that has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN{number - signal.SIGRTMIN:+d}"
