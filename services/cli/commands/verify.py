"""`moorage verify agent`: how well an agent keeps to its protocol, whoever made it."""

from __future__ import annotations

import shlex
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.app import Context, JsonOption, run
from services.cli.exits import Exit
from services.cli.output import Output
from services.cli.verifier import findings

app = typer.Typer(no_args_is_help=True, help="Check what Moorage works with.")

_MARKS = {"right": ("✓", "green"), "wrong": ("✗", "red"), "not tried": ("·", "dim")}
_WIDTH = 30


@app.callback()
def verify() -> None:
    """Check what Moorage works with."""


@app.command()
def agent(
    context: typer.Context,
    command: Annotated[
        str, typer.Option(metavar="COMMAND", help="How the agent is started, as in a shell.")
    ] = "",
    profile: Annotated[str, typer.Option(metavar="PROFILE", help="The agent of a profile instead.")] = "",
    directory: Annotated[
        Path, typer.Option(metavar="DIRECTORY", exists=True, file_okay=False, help="Where it works.")
    ] = Path(),
    prompt: Annotated[str, typer.Option(metavar="WORDS", help="Something that it answers soon.")] = "",
    long_prompt: Annotated[str, typer.Option(metavar="WORDS", help="Something that takes it a while.")] = "",
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For an answer.")] = 30.0,
    _json: JsonOption = False,
) -> None:
    """Start an agent several times over, and say what it does right and what wrong.

    It is told two prompts, which its model has to answer; whatever it asks for is refused.
    """
    options: Context = context.obj
    if bool(command) == bool(profile):
        raise typer.BadParameter("name a command or a profile", param_hint="--command")
    arguments = ["--directory", str(directory), "--timeout", str(timeout)]
    arguments += ["--prompt", prompt] if prompt else []
    arguments += ["--long-prompt", long_prompt] if long_prompt else []
    arguments += ["--profile", profile] if profile else ["--", *shlex.split(command)]
    run(options.output, lambda: _work(options.output, arguments))


async def _work(output: Output, arguments: list[str]) -> Exit:
    wrong = 0
    async with aclosing(findings(arguments)) as found:
        async for finding in found:
            wrong += finding["verdict"] == "wrong"
            _show(output, finding)
    return Exit.FAILED if wrong else Exit.COMPLETED


def _show(output: Output, finding: dict[str, Any]) -> None:
    if output.as_json:
        output.document(finding)
        return
    mark, style = _MARKS[finding["verdict"]]
    output.piece(f"{mark} ", style)
    output.piece(f"{finding['check']:<{_WIDTH}} ")
    output.line(finding["text"], "dim" if finding["verdict"] == "not tried" else "")
