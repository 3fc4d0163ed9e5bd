"""Generate the Python stubs beside the contracts in protos/ (they are committed)."""

import os
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent.parent / "protos"


def main() -> int:
    """Run protoc over every contract; returns its exit status."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    contracts = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    os.chdir(PROTOS)
    return int(
        protoc.main(
            [
                "protoc",
                "-I.",
                f"-I{files('grpc_tools') / '_proto'}",
                "--python_out=.",
                "--grpc_python_out=.",
                "--mypy_out=.",
                "--mypy_grpc_out=.",
                *contracts,
            ]
        )
    )


if __name__ == "__main__":
    sys.exit(main())
