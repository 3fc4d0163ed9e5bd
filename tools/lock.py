"""Resolve pyproject.toml into locks with hashes, for every platform and Python 3.11 to 3.14.

requirements.lock is what .venv holds. deploy/requirements.lock is the part of it, in the same versions, that the
services need. tools/helper.lock is the compiler of `make helper`. Pins already in the lock are kept where they still fit; arguments go to uv (`--upgrade`,
`--upgrade-package NAME`).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILE = (
    *(
        "pip",
        "compile",
        "--quiet",
        "--generate-hashes",
        "--universal",
        "--python-version",
        "3.11",
    ),
    *("--no-header", "--no-emit-find-links", "--no-emit-index-url"),
)
PROJECT = "pyproject.toml"
EVERYTHING = (PROJECT, "--output-file", "requirements.lock", "--extra", "embedded", "--group", "dev")
SERVICES = (PROJECT, "--output-file", "deploy/requirements.lock", "--constraint", "requirements.lock")
HELPER = ("--group", f"{PROJECT}:helper", "--output-file", "tools/helper.lock")


def main() -> int:
    """Fetch uv (group `lock` of pyproject.toml) for this run only and let it resolve; returns its exit status."""
    pip = str(next(ROOT.glob("tools/pip-*.whl")) / "pip")
    with tempfile.TemporaryDirectory() as directory:
        install = [sys.executable, pip, "--quiet", "install", "--target", directory, "--group", "lock"]
        subprocess.run(install, cwd=ROOT, check=True)
        uv = [str(Path(directory) / "bin" / "uv"), *COMPILE, "--python", sys.executable]
        for part in ([*EVERYTHING, *sys.argv[1:]], SERVICES, HELPER):
            if status := subprocess.run([*uv, *part], check=False, cwd=ROOT).returncode:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
