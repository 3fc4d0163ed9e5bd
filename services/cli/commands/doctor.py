"""`moorage doctor`: says in one line each what works here and what does not."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from services.cli import checkup, containers
from services.cli.app import Context, JsonOption, run
from services.cli.checkup import Check, Unwell
from services.cli.database import DatabaseAddress, DatabaseOption, DirectDatabaseOption, PasswordFileOption
from services.cli.exits import Exit
from services.cli.operators import OwnerOption, WorkspaceOption
from services.cli.output import Output, folded
from services.cli.state import Running, find_running, state_directory
from services.cli.verifier import findings

_INDENT = 13
_SIGNS = {"well": ("✓", "green"), "absent": ("-", ""), "unwell": ("✗", "red")}


def doctor(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option(metavar="PROFILE", help="Only start this agent, and see what it lacks.")
    ] = "",
    owner: OwnerOption = "",
    workspace: WorkspaceOption = "",
    database_url: DatabaseOption = "",
    direct_url: DirectDatabaseOption = "",
    password_file: PasswordFileOption = None,
    _json: JsonOption = False,
) -> None:
    """Check this machine, and the services of the `up` around this directory, or what is named instead.

    Inside a deployment its own variables name its services and its database.
    """
    options: Context = context.obj
    named = {"owner": owner, "workspace": workspace, "session": options.address}
    database = DatabaseAddress(database_url, direct_url, password_file)

    async def work() -> Exit:
        checks = {agent: partial(_agent, agent)} if agent else _checks(named, database, options.project)
        healthy = True
        for name, check in checks.items():
            state, told = await checkup.found(check)
            healthy &= state != "unwell"
            _tell(options.output, name, state, told)
        return Exit.COMPLETED if healthy else Exit.FAILED

    run(options.output, work)


def _tell(output: Output, name: str, state: str, told: str) -> None:
    if output.as_json:
        output.document({"check": name, "ok": state != "unwell", "state": state, "text": told})
        return
    sign, style = _SIGNS[state]
    line = f"{sign} {name:<10} {told}"
    if output.console.is_terminal:
        line = folded(line, _INDENT, output.console.width)
    output.piece(line[: len(sign)], style)
    output.line(line[len(sign) :])


def _checks(named: dict[str, str], database: DatabaseAddress, project: str) -> dict[str, Check]:
    """What there is to check, in this order."""
    elsewhere = any(named.values())
    # Whoever names the session service means another `up`, or a deployment.
    running = None if named["session"] else find_running(Path.cwd())
    addresses = _addresses(named, running)
    checks: dict[str, Check] = {"python": checkup.python}
    place = checkup.kept_here() or (None if elsewhere else state_directory(Path.cwd()))
    if place is not None:
        checks["disk"] = partial(checkup.disk, place)
    if database.url:
        checks["postgres"] = partial(checkup.reached, database)
    elif not elsewhere:
        checks["postgres"] = checkup.embedded
    if services := _of_services(addresses, project):
        return checks | services
    return checks | {"services": checkup.none_run, "docker": containers.of_this_machine}


def _addresses(named: dict[str, str], running: Running | None) -> dict[str, str]:
    """Of each service that is known, by its name."""
    known = {name: getattr(running, name) for name in (*named, "runner")} if running else {}
    return known | {name: address for name, address in named.items() if address}


def _of_services(addresses: dict[str, str], project: str) -> dict[str, Check]:
    checks: dict[str, Check] = {
        service: partial(checkup.serves, addresses[service])
        for service in ("owner", "workspace", "session", "runner")
        if service in addresses
    }
    if session := addresses.get("session"):
        checks["session"] = partial(checkup.serves_project, session, project)
    if owner := addresses.get("owner"):
        checks["agents"] = partial(checkup.agents, owner)
    if workspace := addresses.get("workspace"):
        checks["docker"] = partial(_docker, workspace)
    if checks and not {"owner", "workspace"} & checks.keys():
        checks["services"] = checkup.none_named
    return checks


async def _docker(address: str) -> str:
    """Whether containers can be made, if they shall be."""
    return containers.told(await containers.provider_at(address, checkup.TIMEOUT))


async def _agent(profile: str) -> str:
    """Whether an agent can be used here, where the program runs."""
    async with aclosing(findings(["--introduce", "--profile", profile])) as found:
        async for finding in found:
            if not finding["ok"]:
                raise Unwell(finding["text"])
            return str(finding["text"])
    raise Unwell("nothing was found")
