"""Programs of others that call our services, in an empty directory and knowing nothing of our contracts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound=Message)

BUF = Path(sys.prefix) / "bin" / "buf"


def run(command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run to its end in an empty directory."""
    assert not any(directory.iterdir())
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory.parent)}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=50
    )


def messages(text: str, kind: type[MessageT]) -> list[MessageT]:
    """JSON documents one after another, in either spelling of names, as messages of ours."""
    decoder, found, rest = json.JSONDecoder(), [], text.lstrip()
    while rest:
        document, end = decoder.raw_decode(rest)
        found.append(json_format.ParseDict(document, kind()))
        rest = rest[end:].lstrip()
    return found
