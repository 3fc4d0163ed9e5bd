"""How often faults happen, and when: `FAULTS` times each (1), at the moments that `FAULT_SEED` gives."""

from __future__ import annotations

import os

import pytest

FAULTS = int(os.environ.get("FAULTS", "1"))
SEED = os.environ.get("FAULT_SEED", "moorage")

# For tests that take the number of the round.
rounds = pytest.mark.parametrize("number", range(FAULTS))
# For whole modules, whose tests do not want to know it.
repeated = [pytest.mark.usefixtures("number"), rounds]
