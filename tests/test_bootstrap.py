"""Set-up as on a fresh machine: no network, no pip, no ensurepip; a small project stands in for this one."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"

# The stand-in's build backend: what an editable install asks for, and nothing else.
BACKEND = """
import os, zipfile

FILES = {
    "moorage.pth": os.getcwd(),
    "moorage-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: moorage\\nVersion: 1\\n",
    "moorage-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "moorage-1.dist-info/entry_points.txt": "[console_scripts]\\nmoorage = product:main\\n",
    "moorage-1.dist-info/RECORD": "",
}

def build_editable(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(directory, "moorage-1-py3-none-any.whl"), "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
    return "moorage-1-py3-none-any.whl"
"""
PYPROJECT = """
[build-system]
requires = ["backend"]
build-backend = "backend"
[project]
name = "moorage"
version = "1"
"""


def make_wheel(links: Path, name: str, source: str) -> str:
    """Put a package of one module among the links; returns the line that locks it."""
    path = links / f"{name}-1-py3-none-any.whl"
    files = {
        f"{name}.py": source,
        f"{name}-1.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{name}-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        lines = []
        for file, content in files.items():
            wheel.writestr(file, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{len(content)}\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "".join(lines))
    return f"{name}==1 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Checkout:
    """A small project with our tools, in a folder whose name has a space."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.links = folder / "links"
        self.links.mkdir()
        shutil.copytree(TOOLS, self.root / "tools")
        self.lock = self.root / "requirements.lock"
        self.lock.write_text(make_wheel(self.links, "backend", BACKEND))
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        (self.root / "product.py").write_text("def main():\n    print('it runs')\n")
        (folder / "blocked").mkdir()
        for module in ("pip", "ensurepip"):
            (folder / "blocked" / f"{module}.py").write_text(
                f"raise ImportError('no {module} on this machine')\n"
            )
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(folder / "blocked"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.links),
        }

    def begin_set_up(self, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "tools/bootstrap.sh"],
            cwd=self.root,
            env=self.environment | changes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def set_up(self, **changes: str) -> tuple[int, str]:
        """Run to the end; returns exit status and output."""
        process = self.begin_set_up(**changes)
        output, _ = process.communicate()
        return process.returncode, output

    def run(self, *command: str) -> str:
        """Run a command of the environment; returns its output."""
        path = self.root / ".venv" / "bin" / command[0]
        return subprocess.run([path, *command[1:]], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_machine_without_pip_is_set_up_once(checkout: Checkout) -> None:
    status, output = checkout.set_up()
    assert status == 0, output
    assert "Ready" in output
    assert checkout.run("moorage") == "it runs"
    assert checkout.set_up() == (0, "")


def test_settings_that_lead_elsewhere_are_ignored(checkout: Checkout, tmp_path: Path) -> None:
    status, output = checkout.set_up(PIP_TARGET=str(tmp_path / "elsewhere"), PIP_USER="1")
    assert status == 0, output
    assert checkout.run("moorage") == "it runs"
    assert not (tmp_path / "elsewhere").exists()


def test_a_changed_lock_updates_what_is_there(checkout: Checkout) -> None:
    checkout.set_up()
    with checkout.lock.open("a") as lock:
        lock.write(make_wheel(checkout.links, "addition", "VALUE = 7"))
    status, output = checkout.set_up()
    assert (status, "Updating" in output) == (0, True), output
    assert checkout.run("python", "-c", "import addition; print(addition.VALUE)") == "7"
    assert checkout.set_up() == (0, "")


def test_what_left_the_lock_leaves_the_environment(checkout: Checkout) -> None:
    kept = checkout.lock.read_text()
    checkout.lock.write_text(kept + make_wheel(checkout.links, "passing_by", "VALUE = 7"))
    checkout.set_up()
    assert checkout.run("python", "-c", "import passing_by; print(passing_by.VALUE)") == "7"
    checkout.lock.write_text(kept)
    status, output = checkout.set_up()
    assert status == 0, output
    find = "import importlib.util; print(importlib.util.find_spec('passing_by'))"
    assert checkout.run("python", "-c", find) == "None"
    assert checkout.run("moorage") == "it runs"
    assert checkout.set_up() == (0, "")


def test_a_package_with_another_hash_is_refused_and_the_next_run_goes_on(checkout: Checkout) -> None:
    locked = checkout.lock.read_text()
    checkout.lock.write_text(re.sub("sha256:.*", f"sha256:{'0' * 64}", locked))
    status, output = checkout.set_up()
    assert status == 1
    assert "Set-up failed" in output
    assert "HASH" in output.upper()
    checkout.lock.write_text(locked)
    status, output = checkout.set_up()
    assert (status, "interrupted" in output) == (0, True), output
    assert checkout.run("moorage") == "it runs"


def test_an_interrupted_a_broken_and_a_moved_environment_are_made_anew(checkout: Checkout) -> None:
    checkout.set_up()
    venv = checkout.root / ".venv"
    (venv / "moorage-unfinished").touch()
    assert "interrupted" in checkout.set_up()[1]

    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/nowhere/python3")
    assert "is gone" in checkout.set_up()[1]

    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert "another place" in checkout.set_up()[1]
    assert checkout.run("moorage") == "it runs"
    assert checkout.set_up() == (0, "")


def test_two_at_once_do_the_work_once(checkout: Checkout) -> None:
    both = [checkout.begin_set_up(), checkout.begin_set_up()]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(output.count("Setting up") for output in outputs) == [0, 1]


def test_without_a_usable_python_the_message_says_what_to_do(checkout: Checkout, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        (old / name).write_text("#!/bin/sh\nexit 1\n")
        (old / name).chmod(0o755)
    status, output = checkout.set_up(PYTHON="", PATH=f"{old}:{os.environ['PATH']}")
    assert status == 1
    assert "Moorage needs Python 3.11, 3.12, 3.13 or 3.14" in output
    assert "make PYTHON=" in output
    assert not (checkout.root / ".venv").exists()


def test_the_vendored_pip_is_the_one_described() -> None:
    described = re.findall(r"^([0-9a-f]{64})  (\S+)$", (TOOLS / "README.md").read_text(), re.MULTILINE)
    present = [(hashlib.sha256(path.read_bytes()).hexdigest(), path.name) for path in TOOLS.glob("*.whl")]
    assert described == present
