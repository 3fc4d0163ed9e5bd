"""Server reflection that finds methods, as `grpcurl describe some.Service.Method` asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection


def enable_reflection(service_full_names: Iterable[str], server: grpc.aio.Server) -> None:
    """Describe these services, reflection itself, and everything they are made of."""
    names = (*service_full_names, reflection.SERVICE_NAME)
    pool: Any = _Pool()
    reflection.enable_server_reflection(names, server, pool=pool)


class _Pool:
    """The default pool. What it is asked for by symbol it finds for all kinds of symbols but methods."""

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 (the name that is called)
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)
