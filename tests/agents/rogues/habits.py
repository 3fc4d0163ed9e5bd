"""All habits by name."""

from __future__ import annotations

import sys

from . import cancels, ends, errands, floods, leftovers, noises, openings, questions, settings
from .wire import Habit

MODULES = (cancels, ends, errands, floods, leftovers, noises, openings, questions, settings)


def main() -> None:
    """Open a session, each agent in its way; then do what the first argument says, once prompted."""
    name = sys.argv[1]
    prompt = openings.OPENINGS.get(name, openings.as_it_should_be)()
    habit: Habit = next(getattr(module, name) for module in MODULES if hasattr(module, name))
    habit(prompt)
    sys.stdin.buffer.read()
