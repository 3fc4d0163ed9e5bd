"""`python -m bench [NAME…] [--json FILE]`: without a name, all of them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, cast

import typer

import bench
from bench.harness.report import write
from bench.harness.results import Effort, Report

Bench = Callable[[Effort], Coroutine[None, None, Report]]

_USUAL = Effort()


def names() -> list[str]:
    """Every module beside this one is a bench; `harness` is a package."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(bench.__path__)
        if not (module.ispkg or module.name.startswith("_"))
    )


def main(
    chosen: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="lease, …")] = None,
    json: Annotated[str, typer.Option(metavar="FILE", help="also write JSON; - is stdout")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="values for each median")] = _USUAL.rounds,
    seconds: Annotated[float, typer.Option(min=0.01, help="seconds of work for each value")] = _USUAL.seconds,
) -> None:
    """Measure what Moorage costs, each time against a reference of the same run."""
    if unknown := sorted(set(chosen or ()) - set(names())):
        raise typer.BadParameter(f"no bench {', '.join(unknown)}; there are {', '.join(names())}")
    report = Report()
    for name in chosen or names():
        module = importlib.import_module(f"bench.{name}")
        print(f"{name}: {(inspect.getdoc(module) or '').splitlines()[0]}", file=sys.stderr)
        report.extend(asyncio.run(cast("Bench", module.measure)(Effort(rounds, seconds))))
    write(report, json)


if __name__ == "__main__":
    typer.run(main)
