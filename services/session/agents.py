"""Which agent a session wants, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_present, check_secret, check_size, check_text
from services.session.checks import check_environment, check_name, stored

_MAX_VALUE: Final = 255
_MAX_OPTIONS: Final = 64
_MAX_SERVERS: Final = 32
_MAX_ARGUMENTS: Final = 64
_MAX_TEXT: Final = 4096
# All of it is part of the session's row, and read with it.
_MAX_SPEC: Final = 64 * 1024
_SCHEMES: Final = ("http://", "https://")


def check_agent(field: str, given: session_pb2.AgentSpec, default_profile: str) -> session_pb2.AgentSpec:
    """The agent to store; InvalidArgument names the field."""
    agent = session_pb2.AgentSpec()
    agent.CopyFrom(given)
    agent.profile = check_name(f"{field}.profile", agent.profile or default_profile)
    check_environment(f"{field}.environment", agent.environment)
    _check_secrets(f"{field}.secret_refs", agent.secret_refs, agent.environment)
    _check_value(f"{field}.mode", agent.mode)
    _check_value(f"{field}.model", agent.model)
    check_size(f"{field}.options", agent.options, _MAX_OPTIONS, "options")
    for option, value in agent.options.items():
        check_present(f"{field}.options", option)
        _check_value(f"{field}.options", option)
        check_present(f"{field}.options.{option}", value)
        _check_value(f"{field}.options.{option}", value)
    _check_servers(f"{field}.mcp_servers", agent.mcp_servers)
    check_size(field, stored(agent), _MAX_SPEC)
    return agent


def _check_servers(field: str, servers: Sequence[session_pb2.McpServer]) -> None:
    check_size(field, servers, _MAX_SERVERS, "servers")
    for index, server in enumerate(servers):
        _check_server(f"{field}[{index}]", server)
    if len({server.name for server in servers}) < len(servers):
        raise InvalidArgument.of(field, "must have different names")


def _check_server(field: str, server: session_pb2.McpServer) -> None:
    check_name(f"{field}.name", server.name)
    match server.WhichOneof("transport"):
        case "stdio":
            check_present(f"{field}.stdio.command", server.stdio.command)
            check_size(f"{field}.stdio.args", server.stdio.args, _MAX_ARGUMENTS, "arguments")
            for text in (server.stdio.command, *server.stdio.args):
                _check_long(f"{field}.stdio", text)
            check_environment(f"{field}.stdio.environment", server.stdio.environment)
            _check_secrets(f"{field}.stdio.secret_refs", server.stdio.secret_refs, server.stdio.environment)
        case "http":
            _check_called(f"{field}.http", server.http)
        case "sse":
            _check_called(f"{field}.sse", server.sse)
        case _:
            raise InvalidArgument.of(field, "must have exactly one transport")


def _check_called(field: str, called: session_pb2.McpHttp) -> None:
    if not called.url.startswith(_SCHEMES):
        raise InvalidArgument.of(f"{field}.url", "must begin with http:// or https://")
    _check_long(f"{field}.url", called.url)
    _check_headers(f"{field}.headers", called.headers)
    _check_headers(f"{field}.secret_refs", called.secret_refs)
    _check_given_once(f"{field}.headers", called.headers, called.headers)
    _check_given_once(f"{field}.secret_refs", called.secret_refs, (*called.headers, *called.secret_refs))
    _check_names(f"{field}.secret_refs", called.secret_refs, ())


def _check_headers(field: str, headers: Mapping[str, str]) -> None:
    check_size(field, headers, _MAX_OPTIONS, "headers")
    for name, value in headers.items():
        check_present(field, name)
        _check_long(field, name)
        _check_long(f"{field}.{name[:80]}", value)


def _check_given_once(field: str, headers: Mapping[str, str], among: Iterable[str]) -> None:
    """Names of headers are the same in any case."""
    times = Counter(name.lower() for name in among)
    for name in sorted(headers):
        if times[name.lower()] > 1:
            raise InvalidArgument.of(
                f"{field}.{name[:80]}", "is given twice: the case of a header makes no difference"
            )


def _check_secrets(field: str, refs: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Variables that are secret: usable names, none of them given as a value too."""
    check_environment(field, refs)
    _check_names(field, refs, others)


def _check_names(field: str, refs: Mapping[str, str], others: Container[str]) -> None:
    for name in sorted(refs):
        check_secret(f"{field}.{name[:80]}", refs[name])
        if name in others:
            raise InvalidArgument.of(f"{field}.{name[:80]}", "is given twice")


def _check_value(field: str, value: str) -> None:
    check_text(field, value)
    if len(value) > _MAX_VALUE:
        raise InvalidArgument.of(field, f"has more than {_MAX_VALUE} characters")


def _check_long(field: str, text: str) -> None:
    check_text(field, text)
    if len(text) > _MAX_TEXT:
        raise InvalidArgument.of(field, f"has more than {_MAX_TEXT} characters")
