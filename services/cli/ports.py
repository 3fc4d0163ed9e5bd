"""Finds addresses on loopback for services that are about to start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from services.cli.failures import CommandFailed
from services.common.addresses import Address

LOOPBACK = "127.0.0.1"


class PortTaken(CommandFailed):
    """An address that was asked for cannot be had."""


def choose(preferred: Mapping[str, int], fixed: Mapping[str, str]) -> dict[str, str]:
    """An address for each name: the fixed one, else the preferred port, else a free one.

    All are bound at once before any is given back, so that no two are the same. A port 0 is a free
    one. PortTaken when a fixed one cannot be had.
    """
    with ExitStack() as held:
        addresses = {name: _fixed(held, address) for name, address in fixed.items()}
        for name in preferred.keys() - addresses.keys():
            addresses[name] = _preferred(held, preferred[name])
        return addresses


def all_free(addresses: Iterable[str]) -> bool:
    """Whether nobody listens on any of these."""
    with ExitStack() as held:
        try:
            for address in addresses:
                _bind(held, Address.parse(address))
        except OSError:
            return False
    return True


def _fixed(held: ExitStack, address: str) -> str:
    try:
        return _bind(held, Address.parse(address))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise PortTaken(f"cannot listen on {address}: {why}") from None


def _preferred(held: ExitStack, port: int) -> str:
    try:
        return _bind(held, Address(LOOPBACK, port))
    except OSError:
        return _bind(held, Address(LOOPBACK, 0))


def _bind(held: ExitStack, address: Address) -> str:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    candidate = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    # A port whose last connections are still closing is free all the same.
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    candidate.bind((address.host, address.port))
    candidate.listen(1)
    return str(address.with_port(candidate.getsockname()[1]))
