"""The two locks say the same: what the image holds is what was tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """Versions by name."""
    return dict(PIN.findall((ROOT / lock).read_text()))


def test_the_image_has_versions_that_were_tested() -> None:
    assert pins("deploy/requirements.lock").items() <= pins("requirements.lock").items()


def test_the_image_has_all_that_the_services_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[\[<>=~!; ]", wanted)[0] for wanted in project["dependencies"]}
    assert needed
    assert needed <= pins("deploy/requirements.lock").keys()
