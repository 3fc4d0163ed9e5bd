"""`python -m services.common.healthcheck [HOST:PORT]`: exits 0 when the service there is ready, for container engines.

Without an address it asks the service that the environment tells where to listen: MOORAGE_<SERVICE>_LISTEN.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.addresses import Address
from services.common.health import READY

_TIMEOUT: Final = 3.0
_UNHEALTHY: Final = 1
_USAGE: Final = 2
# Of other listeners than the first, such as the journal's, a service's name is not all that stands before LISTEN.
_VARIABLE: Final = re.compile(r"MOORAGE_([A-Z]+_)?LISTEN")
_OPTIONS: Final = [("grpc.enable_http_proxy", 0)]
# The published stubs lack methods and values.
_pb2: Any = health_pb2
_grpc: Any = health_pb2_grpc


def main() -> None:
    """Ask once, say on standard error what is wrong."""
    sys.exit(check(sys.argv[1:], os.environ))


def check(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code: 0 ready, 1 not, 2 not asked."""
    given = list(arguments) or [value for name, value in environment.items() if _VARIABLE.fullmatch(name)]
    if len(given) != 1:
        return _tell(f"which of {given}?" if given else "give HOST:PORT", _USAGE)
    try:
        address = _reachable(Address.parse(given[0]))
    except ValueError as error:
        return _tell(str(error), _USAGE)
    return _ask(address)


def _reachable(listening: Address) -> Address:
    """Where a service that listens on all addresses is reached from its own machine."""
    if not listening.is_wildcard:
        return listening
    return replace(listening, host="::1" if ":" in listening.host else "127.0.0.1")


def _ask(address: Address) -> int:
    with grpc.insecure_channel(str(address), options=_OPTIONS) as channel:
        request = health_pb2.HealthCheckRequest(service=READY)
        try:
            answer = _grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT)
        except grpc.RpcError as error:
            refused: Any = error
            return _tell(f"{address}: {refused.details()}", _UNHEALTHY)
    if answer.status == _pb2.HealthCheckResponse.SERVING:
        return 0
    return _tell(f"{address} is not ready", _UNHEALTHY)


def _tell(text: str, code: int) -> int:
    print(f"healthcheck: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    main()
