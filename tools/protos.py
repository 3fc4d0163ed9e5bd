"""Generate the Python stubs beside the contracts in protos/ (they are committed), or check that they are up to date."""

import argparse
import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent.parent / "protos"
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(target: Path) -> int:
    """Run protoc over every contract; returns its exit status."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = (f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc"))
    options = ("--mypy_opt=quiet", "--mypy_grpc_opt=quiet")
    contracts = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    os.chdir(PROTOS)
    imports = ("-I.", f"-I{files('grpc_tools') / '_proto'}")
    return int(protoc.main(["protoc", *imports, *outputs, *options, *contracts]))


def read_stubs(root: Path) -> dict[str, bytes]:
    """Every stub below the root, by its path from there."""
    return {
        str(path.relative_to(root)): path.read_bytes() for pattern in STUBS for path in root.rglob(pattern)
    }


def write(wanted: dict[str, bytes], present: dict[str, bytes]) -> None:
    """Make protos/ hold the wanted stubs and no others; files that are the same are not touched."""
    for name in present.keys() - wanted.keys():
        (PROTOS / name).unlink()
    for name, content in wanted.items():
        if present.get(name) != content:
            (PROTOS / name).write_bytes(content)


def main() -> int:
    """Returns the exit status: 0 when the stubs are now, or with --check were, those of the contracts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when a stub is not up to date"
    )
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as directory:
        if status := generate(Path(directory)):
            return status
        wanted, present = read_stubs(Path(directory)), read_stubs(PROTOS)
    outdated = sorted(
        name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name)
    )
    if not check:
        write(wanted, present)
    elif outdated:
        print("not up to date (run `make protos`):", *outdated, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
