"""`moorage demo`: the main job, on services of its own or on those that run somewhere."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.connection import connect
from services.cli.demo import Demo
from services.cli.exits import Exit
from services.cli.options import check_target, checked
from services.cli.output import Output
from services.cli.postgres.embedded import EmbeddedPostgres
from services.cli.stack import PORTS, StackOptions, run_stack


def demo(
    context: typer.Context,
    on: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=checked(check_target),
            help="The session service of a deployment to run it on, instead of services of its own.",
        ),
    ] = "",
    provider: Annotated[
        str,
        typer.Option(
            metavar="PROVIDER",
            help="With --on: how its workspace is made, `local` (the default) or `docker`.",
        ),
    ] = "",
    _json: JsonOption = False,
) -> None:
    """Run the main job, on services of its own, and check everything that is told."""
    options: Context = context.obj
    if on:
        _on_a_deployment(options, on, provider or "local")
    if provider:
        raise typer.BadParameter(
            "it is for --on HOST:PORT; services of its own have local workspaces", param_hint="--provider"
        )
    home = Path(tempfile.mkdtemp(prefix="moorage-demo-")).resolve()
    state = home / "state"

    async def work() -> Exit:
        await _demonstrate(home / "work", state, options.output)
        return Exit.COMPLETED

    failed = False
    try:
        run(options.output, work)
    except typer.Exit as end:
        failed = end.exit_code == Exit.FAILED
        raise
    except Exception:
        failed = True
        raise
    finally:
        # Also when nobody reads on, which ends the program in its own way.
        EmbeddedPostgres(state / "postgres").remove()  # as root it may keep its data elsewhere
        if failed:
            options.output.hint(f"the services' logs are in {state / 'logs'}")
        else:
            shutil.rmtree(home)


def _on_a_deployment(options: Context, target: str, provider: str) -> NoReturn:
    async def work() -> Exit:
        async with connect(target, options.project, "--on") as connection:
            await Demo(connection, _teller(options.output), options.output.hint, provider, remote=True).run()
        return Exit.COMPLETED

    run(options.output, work, target)


async def _demonstrate(root: Path, state: Path, output: Output) -> None:
    tell = _teller(output)
    started = time.monotonic()
    root.mkdir()
    stack = StackOptions(root, state, listen=dict.fromkeys(PORTS, "127.0.0.1:0"))
    async with run_stack(stack) as running:
        tell("services", f"four processes and PostgreSQL, in {time.monotonic() - started:.1f} s")
        async with connect(running.running.session, "default") as connection:
            await running.during(Demo(connection, tell, output.hint).run())
    tell("end", f"all processes ended, after {time.monotonic() - started:.1f} s")


def _teller(output: Output) -> Callable[[str, str], None]:
    def tell(step: str, text: str) -> None:
        if output.as_json:
            output.document({"step": step, "text": text})
            return
        output.piece("✓ ", "green")
        output.piece(f"{step:<11} ", "bold")
        output.line(text)

    return tell
