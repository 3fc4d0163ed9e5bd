"""Entry point: makes our packages importable from a bare directory and does the job."""

import importlib
import sys
from pathlib import Path

# Run by path, the directory itself comes first on the path, not the one that holds our packages.
sys.path[0] = str(Path(__file__).resolve().parents[4])
importlib.import_module("services.workspace.sources.fetch.job").main()
