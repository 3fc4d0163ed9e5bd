"""Servers of the Model Context Protocol, as an agent is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moorage.session.v1.session_pb2 import McpServer

from services.runner.acp.errors import UnsupportedServer
from services.runner.acp.library import schema
from services.runner.acp.lines import Message

# Every agent can start one; what else it can it says.
_ALWAYS: Final = "stdio"


def acp_servers(servers: Iterable[McpServer], capabilities: schema.AgentCapabilities) -> list[Message]:
    """The servers in the protocol's words; UnsupportedServer names the first one that the agent cannot reach."""
    return [_acp_server(server, capabilities) for server in servers]


def _acp_server(server: McpServer, capabilities: schema.AgentCapabilities) -> Message:
    transport = server.WhichOneof("transport")
    if transport is None:
        raise UnsupportedServer(f"the MCP server {server.name} has no known transport")
    if transport == _ALWAYS:
        stdio = server.stdio
        variables = _pairs(stdio.environment)
        return {"name": server.name, "command": stdio.command, "args": list(stdio.args), "env": variables}
    if not getattr(capabilities.mcp_capabilities, transport, False):
        raise UnsupportedServer(
            f"the agent cannot reach the MCP server {server.name}: it does not speak {transport}"
        )
    called = server.http if transport == "http" else server.sse
    return {"type": transport, "name": server.name, "url": called.url, "headers": _pairs(called.headers)}


def _pairs(values: Mapping[str, str]) -> list[Message]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]
