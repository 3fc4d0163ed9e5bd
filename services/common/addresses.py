"""Network addresses as HOST:PORT, as settings and leases carry them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Self

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name, IPv4 or IPv6) and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int | None = None) -> Self:
        """Read HOST:PORT or [IPV6]:PORT; ValueError says what is wrong."""
        host, separator, port = text.rpartition(":")
        if (not separator or text.endswith("]")) and default_port is not None:
            host, port = text, str(default_port)
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not host or (":" in host and not bracketed):
            raise ValueError(f"{text!r} is not HOST:PORT")
        if not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
            raise ValueError(f"{text!r} has no port from 0 to {_MAX_PORT}")
        return cls(host, int(port))

    def __str__(self) -> str:
        """HOST:PORT, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def with_port(self, port: int) -> Self:
        """The same host with this port where it has none yet."""
        return self if self.port else replace(self, port=port)

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it. A name other than localhost counts as reachable."""
        ip = self._ip()
        return self.host == "localhost" if ip is None else ip.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """It stands for every address of the machine, so nobody can connect to it by this name."""
        ip = self._ip()
        return ip is not None and ip.is_unspecified

    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None
