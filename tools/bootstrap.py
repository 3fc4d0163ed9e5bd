"""Make .venv hold exactly what requirements.lock pins, and Moorage itself; run by bootstrap.sh.

Standard library only. pip comes from the wheel beside this file, so neither ensurepip nor an installed pip is needed.
Quick when nothing changed; an environment that is broken, half made or moved is made anew.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = next(ROOT.glob("tools/pip-*.whl"))
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DONE = VENV / "moorage-done"
UNFINISHED = VENV / "moorage-unfinished"

# A user's settings that would send packages elsewhere, or let pip see packages that the environment does not have.
MISLEADING = frozenset({"PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH"})


# Prints what the environment has.
LISTING = "import importlib.metadata as m; print(*{d.metadata['Name'] for d in m.distributions()}, sep='\\n')"


class SetUpFailedError(Exception):
    """A step failed; what it printed is on the terminal already."""


@contextmanager
def only_one() -> Iterator[None]:
    """Keep two set-ups of one checkout apart."""
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def fingerprint() -> str:
    """Of everything that decides what the environment holds."""
    digest = hashlib.sha256(PIP.name.encode())
    for name in ("requirements.lock", "pyproject.toml", "tools/bootstrap.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def configuration() -> dict[str, str]:
    """What pyvenv.cfg says; empty without one."""
    try:
        lines = (VENV / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def minor_version() -> str:
    """Of the interpreter that runs this file, like 3.11."""
    return ".".join(map(str, sys.version_info[:2]))


def running_version() -> str | None:
    """Of the interpreter that the environment reaches now; None when it does not run."""
    command = [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def fault() -> str | None:
    """Why the environment cannot be kept, if so."""
    if not VENV.exists():
        return "there is none yet"
    if UNFINISHED.exists():
        return "its making was interrupted"
    recorded = configuration()
    if not recorded.get("command", "").endswith(f" {VENV}"):
        return "it was made in another place"
    made_with, wanted = recorded.get("version", "").rpartition(".")[0], minor_version()
    if os.environ.get("PYTHON") and made_with != wanted:
        return f"Python {wanted} was asked for"
    if running_version() != made_with:
        return f"it was made with a Python {made_with} that is gone"
    return None


def ready() -> bool:
    """Whether the environment is the one wanted."""
    return fault() is None and DONE.exists() and DONE.read_text() == fingerprint()


def pip(*arguments: str) -> None:
    """Run the vendored pip in the environment."""
    environment = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
    command = [str(PYTHON), f"{PIP}/pip", "--quiet", *arguments]
    if subprocess.run(command, check=False, env=environment, cwd=ROOT).returncode:
        raise SetUpFailedError("pip's message is above; the same command goes on once its cause is gone")


def normalised(names: Iterable[str]) -> set[str]:
    """Names of distributions as they are compared."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def surplus() -> set[str]:
    """What the environment has and the lock does not, or no longer."""
    command = [str(PYTHON), "-I", "-c", LISTING]
    present = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return normalised(present) - normalised([*locked, "moorage"])


def create() -> None:
    """An empty environment, marked unfinished before anything is in it."""
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    UNFINISHED.touch()
    venv.EnvBuilder(symlinks=True, with_pip=False).create(VENV)


def install() -> None:
    """Bring the environment to the lock's state; the project itself is installed editable."""
    UNFINISHED.touch()
    DONE.unlink(missing_ok=True)
    pip("install", "--require-hashes", "-r", "requirements.lock")
    pip("install", "--no-deps", "--no-build-isolation", "--editable", ".")
    if left_over := surplus():
        pip("uninstall", "--yes", *sorted(left_over))
    DONE.write_text(fingerprint())
    UNFINISHED.unlink()


def set_up() -> None:
    """Make, mend or update the environment, and say so."""
    started = time.monotonic()
    reason = fault()
    if reason:
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"Setting up .venv with Python {python} ({reason}); about a minute …", flush=True)
        create()
    else:
        print("Updating .venv …", flush=True)
    install()
    print(f"Ready after {time.monotonic() - started:.0f} s.", flush=True)


def main() -> int:
    """Set up unless that is done; returns the exit status."""
    try:
        with only_one():
            if not ready():
                set_up()
    except KeyboardInterrupt:
        print("Set-up interrupted; the next run begins anew.", file=sys.stderr)
        return 130
    except (OSError, SetUpFailedError, subprocess.CalledProcessError) as error:
        print(f"Set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
