"""Options that say which agent a new session has, and how it is set."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from moorage.session.v1 import session_pb2

ModelOption = Annotated[
    str, typer.Option(metavar="MODEL", help="For a new session: a model that the agent offers.")
]
ModeOption = Annotated[
    str, typer.Option(metavar="MODE", help="For a new session: a mode that the agent offers.")
]
AgentOptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-option",
        metavar="ID=VALUE",
        help="For a new session: an option that the agent offers; repeatable.",
    ),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="NAME=COMMAND",
        help="For a new session: a server of the Model Context Protocol, by its command or URL; repeatable.",
    ),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="VARIABLE=NAME",
        help="For a new session: a variable of the agent, and the runners' secret to put in; repeatable.",
    ),
]


def agent_of(
    profile: str,
    model: str,
    mode: str,
    options: list[str] | None,
    mcp: list[str] | None,
    secrets: list[str] | None,
) -> session_pb2.AgentSpec:
    """The agent that is asked for."""
    return session_pb2.AgentSpec(
        profile=profile,
        model=model,
        mode=mode,
        options=dict(_pair(text, "--agent-option") for text in options or ()),
        mcp_servers=[_server(*_pair(text, "--mcp")) for text in mcp or ()],
        secret_refs=dict(_pair(text, "--secret") for text in secrets or ()),
    )


def _server(name: str, target: str) -> session_pb2.McpServer:
    if target.startswith(("http://", "https://")):
        return session_pb2.McpServer(name=name, http=session_pb2.McpHttp(url=target))
    try:
        command, *args = shlex.split(target)
    except ValueError as error:
        raise typer.BadParameter(f"{target} is no command", param_hint="--mcp") from error
    return session_pb2.McpServer(name=name, stdio=session_pb2.McpStdio(command=command, args=args))


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not value.strip():
        raise typer.BadParameter(f"{text} is not NAME=VALUE", param_hint=flag)
    return name, value
