"""`moorage demo`: the main job on services of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.connection import connect
from services.cli.demo import Demo, DemoFailed
from services.cli.exits import Exit
from services.cli.postgres import EmbeddedPostgres
from services.cli.stack import StackOptions, run_stack


def demo(context: typer.Context, _json: JsonOption = False) -> None:
    """Run the main job on services of its own, and check everything that is told."""
    options: Context = context.obj
    started = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="moorage-demo-"))

    def tell(step: str, text: str) -> None:
        if options.output.as_json:
            options.output.document({"step": step, "text": text})
        else:
            options.output.console.print(f"[green]✓[/] [bold]{step:<11}[/]", end=" ")
            options.output.line(text)

    async def work() -> Exit:
        root = home / "work"
        root.mkdir()
        async with run_stack(StackOptions(root=root.resolve(), state=home / "state")) as stack:
            tell("services", f"four processes and PostgreSQL, in {time.monotonic() - started:.1f} s")
            async with connect(stack.running.session, "default") as connection:
                await Demo(connection, root.resolve(), tell).run()
        tell("end", f"all processes ended, after {time.monotonic() - started:.1f} s")
        return Exit.COMPLETED

    try:
        run(options.output, work)
    except DemoFailed as failure:
        options.output.error(str(failure))
        options.output.hint(f"logs and data are kept in {home}")
        raise typer.Exit(Exit.FAILED) from None
    except typer.Exit as end:
        if end.exit_code == Exit.COMPLETED:
            EmbeddedPostgres(home / "state" / "postgres").remove()  # as root it may keep its data elsewhere
            shutil.rmtree(home)
        else:
            options.output.hint(f"logs and data are kept in {home}")
        raise
