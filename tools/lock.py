"""Resolve pyproject.toml into requirements.lock: one lock with hashes for every platform and Python 3.11 to 3.14.

Pins already in the lock are kept where they still fit; arguments go to uv (`--upgrade`, `--upgrade-package NAME`).
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
        "pyproject.toml",
        "--output-file",
        "requirements.lock",
        "--quiet",
        "--generate-hashes",
    ),
    *("--universal", "--python-version", "3.11", "--extra", "embedded", "--group", "dev"),
    *("--no-header", "--no-emit-find-links", "--no-emit-index-url"),
)


def main() -> int:
    """Fetch uv (group `lock` of pyproject.toml) for this run only and let it resolve; returns its exit status."""
    pip = str(next(ROOT.glob("tools/pip-*.whl")) / "pip")
    with tempfile.TemporaryDirectory() as directory:
        install = [sys.executable, pip, "--quiet", "install", "--target", directory, "--group", "lock"]
        subprocess.run(install, cwd=ROOT, check=True)
        resolve = [str(Path(directory) / "bin" / "uv"), *COMPILE, "--python", sys.executable, *sys.argv[1:]]
        return subprocess.run(resolve, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
