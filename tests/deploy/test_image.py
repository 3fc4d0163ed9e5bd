"""What `make image` leaves on the engine: the image, and nothing else of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.deployment import missing, output_of

DOCKERFILE = Path(__file__).parents[2] / "deploy" / "Dockerfile"
LABEL = "io.moorage.stage"


def test_no_stage_of_it_stays_as_an_image_without_a_name() -> None:
    if cause := missing():
        pytest.skip(cause)
    assert f'LABEL {LABEL}="${{STAGE}}"' in DOCKERFILE.read_text()
    found = output_of(
        "docker", "images", "--quiet", "--filter", "dangling=true", "--filter", f"label={LABEL}"
    )
    assert found == ""
