"""Settings of an instance that mean something else than they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.common.settings import load_settings
from services.workspace.config import WorkspaceSettings


@pytest.mark.parametrize(
    ("variable", "flags", "named"),
    [
        (None, [], False),
        ("", [], False),
        ("", ["--root", "."], True),
        (".", [], True),
        (".", ["--root", ""], False),
    ],
)
def test_an_empty_root_is_none_that_somebody_named(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, flags: list[str], *, named: bool
) -> None:
    monkeypatch.setenv("MOORAGE_DATABASE_URL", "postgresql://localhost/moorage")
    monkeypatch.delenv("MOORAGE_WORKSPACE_ROOT", raising=False)
    if variable is not None:
        monkeypatch.setenv("MOORAGE_WORKSPACE_ROOT", variable)
    settings = load_settings(WorkspaceSettings, flags)
    assert settings.root == Path.cwd().resolve()
    assert settings.named_root == (str(settings.root) if named else "")
