"""The report for people, and for programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness.results import Report, Result

STDOUT = "-"


def write(report: Report, json_file: str) -> None:
    """Print a table; to stderr when the JSON goes to stdout (`-`)."""
    Console(stderr=json_file == STDOUT).print(_table(report))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    text = json.dumps(report.document(), indent=2)
    if json_file == STDOUT:
        print(text)
    elif json_file:
        Path(json_file).write_text(text + "\n", encoding="utf-8")


def _table(report: Report) -> Table:
    table = Table("metric", "unit", box=None)
    for name in ("value", "reference", "ratio", "runs", "spread"):
        table.add_column(name, justify="right")
    table.add_column("against")
    for result in report.results:
        table.add_row(*_row(result))
    return table


def _row(result: Result) -> list[str]:
    reference = "" if result.reference is None else _number(result.reference)
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    return [
        *(result.metric, result.unit, _number(result.value), reference, ratio),
        *(str(result.runs), f"{result.spread:.0%}", result.against),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
