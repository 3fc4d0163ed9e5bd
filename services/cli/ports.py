"""Finds addresses on loopback for services that are about to start."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


class PortTaken(Exception):
    """Somebody else listens on an address that was asked for."""


def choose(preferred: Mapping[str, int], fixed: Mapping[str, str]) -> dict[str, str]:
    """An address for each name: the fixed one, else the preferred port, else a free one.

    All are bound at once before any is given back, so that no two are the same.
    PortTaken when a fixed one is in use.
    """
    with ExitStack() as held:
        addresses = {name: _fixed(held, address) for name, address in fixed.items()}
        for name, port in preferred.items():
            if name not in addresses:
                addresses[name] = _bind(held, LOOPBACK, port) or _bind(held, LOOPBACK, 0) or ""
        return addresses


def _fixed(held: ExitStack, address: str) -> str:
    host, _, port = address.rpartition(":")
    bound = _bind(held, host.strip("[]"), int(port))
    if bound is None:
        raise PortTaken(f"{address} is in use; choose another --listen")
    return bound


def _bind(held: ExitStack, host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    candidate = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    # A port whose last connections are still closing is free all the same.
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        candidate.bind((host, port))
        candidate.listen(1)
    except OSError:
        return None
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{candidate.getsockname()[1]}"
