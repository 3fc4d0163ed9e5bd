"""Entry point: makes the package importable from a bare directory and starts the agent."""

import importlib
import sys
from pathlib import Path

# Run by path, the directory itself comes first on the path, not the one that holds the package.
sys.path[0] = str(Path(__file__).resolve().parents[1])
importlib.import_module("rogues.habits").main()
