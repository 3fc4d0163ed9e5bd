"""Build the helper of execs in containers, for each kind of machine that containers run on.

Its source is services/workspace/docker/exec/helper, where the programs go to `built/`. The compiler (tools/helper.lock)
is fetched into build/helper when it is needed; nothing is done, and nothing fetched, when what is there was built from
this source in this way.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "services/workspace/docker/exec/helper"
BUILT = SOURCE / "built"
LOCK = ROOT / "tools/helper.lock"
COMPILER = ROOT / "build/helper"
INSTALLED = COMPILER / "installed.lock"
MACHINES = ("x86_64", "aarch64")
FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-Os", "-static", "-s"),
    *("-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror"),
)


def main() -> int:
    """Build what is missing or old; returns the exit status."""
    wanted = _fingerprint()
    if _is_there(wanted):
        return 0
    # Nothing else is heard of it for a while.
    first = "" if _has_compiler() else "; its compiler is fetched first"
    _tell(f"building the helper of commands in containers, which takes 1 to 2 minutes, once{first}")
    if not _has_compiler():
        _fetch_compiler()
    BUILT.mkdir(exist_ok=True)
    for machine in MACHINES:
        _build(machine)
    (BUILT / "fingerprint").write_text(wanted)
    _tell(f"built the helper for {', '.join(MACHINES)}")
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)


def _sources() -> list[Path]:
    return sorted([*SOURCE.glob("*.c"), *SOURCE.glob("*.h")])


def _fingerprint() -> str:
    """Of everything that a program is made from."""
    digest = hashlib.sha256(repr((FLAGS, MACHINES)).encode())
    for path in (*_sources(), LOCK):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _is_there(wanted: str) -> bool:
    known = BUILT / "fingerprint"
    return (
        all((BUILT / machine).is_file() for machine in MACHINES)
        and known.is_file()
        and known.read_text() == wanted
    )


def _has_compiler() -> bool:
    return INSTALLED.is_file() and INSTALLED.read_bytes() == LOCK.read_bytes()


def _fetch_compiler() -> None:
    pip = str(next(ROOT.glob("tools/pip-*.whl")) / "pip")
    arguments = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--upgrade")
    subprocess.run(
        [
            *(sys.executable, pip, "--quiet", "--disable-pip-version-check", "install"),
            *(*arguments, "--target", str(COMPILER), "--requirement", str(LOCK)),
        ],
        check=True,
    )
    INSTALLED.write_bytes(LOCK.read_bytes())


def _build(machine: str) -> None:
    """Into place as a whole, so that nobody sees half of it."""
    new = BUILT / f"{machine}.new"
    compiler = COMPILER / "ziglang" / ("zig.exe" if os.name == "nt" else "zig")
    caches = {f"ZIG_{name}_CACHE_DIR": str(COMPILER / "cache") for name in ("LOCAL", "GLOBAL")}
    sources = [str(path) for path in _sources() if path.suffix == ".c"]
    subprocess.run(
        [str(compiler), "cc", "-target", f"{machine}-linux-musl", *FLAGS, *sources, "-o", str(new)],
        check=True,
        env={**os.environ, **caches},
    )
    new.replace(BUILT / machine)


if __name__ == "__main__":
    sys.exit(main())
