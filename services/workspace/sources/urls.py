"""Addresses of sources: which ones there can be, and which hosts they may lead to.

Standard library only: the process that fetches uses it too.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

PORTS: Final = {"http": 80, "https": 443}
LONGEST: Final = 2048

_PRINTABLE: Final = re.compile(r"[!-~]+")
# In globs: one of several characters, and what matches whatever there is.
_SET: Final = re.compile(r"\[[^]]+]")
_NAMELESS: Final = re.compile(r"[.:*?]*[*?][.:*?]*")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
# Networks whose addresses hold one of version 4 in their last bits: NAT64, IPv4-translated, IPv4-compatible.
_HOLDING: Final = tuple(ipaddress.IPv6Network(each) for each in ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96"))
# What leads to one network's own machines, though Python counts it as global: NAT64 of local use, site-local.
_LOCAL: Final = tuple(ipaddress.IPv6Network(each) for each in ("64:ff9b:1::/48", "fec0::/10"))

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadUrl(ValueError):
    """An address that no source can have; the text says why, without the address."""


class Forbidden(Exception):
    """A host that sources may not be fetched from; the text says why."""


@dataclass(frozen=True, slots=True)
class Url:
    """An address that was taken apart. `host` and `port` are those of http and https only."""

    text: str
    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it names something on the instance's machine."""
        return self.scheme == "file"

    def __str__(self) -> str:
        """Without the query, which may hold what is secret."""
        return self.text.partition("?")[0]


def parse(text: str) -> Url:
    """Take an address apart: http, https or file, without user, password and fragment; BadUrl."""
    if len(text) > LONGEST or not _PRINTABLE.fullmatch(text):
        raise BadUrl(f"must be 1 to {LONGEST} printable characters of ASCII")
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError as error:
        raise BadUrl("is no address") from error
    if split.fragment or "@" in split.netloc or "\\" in text:
        raise BadUrl("must not have a user, a password, a fragment or a backslash")
    if split.scheme == "file":
        return _local(text, split)
    if split.scheme not in PORTS or not split.hostname or not _HOST.fullmatch(split.hostname):
        raise BadUrl("must begin with https://, http:// or file:// and name a host")
    return Url(text, split.scheme, split.hostname, port or PORTS[split.scheme], split.path)


def _local(text: str, split: SplitResult) -> Url:
    path = unquote(split.path)
    if split.netloc or split.query or not path.startswith("/") or "\0" in path:
        raise BadUrl("must be file:// and an absolute path")
    return Url(text, "file", "", 0, path)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts that sources may be fetched from: globs of HOST or HOST:PORT.

    `*` is every host whose addresses are all public, and `*:PORT` the same at this port. A host
    that another pattern names may have any address: whoever named it knows.
    """

    patterns: Sequence[str]

    def addresses(self, url: Url) -> list[str]:
        """Where it may be reached; Forbidden, OSError when its name leads nowhere."""
        matching = [pattern for pattern in self.patterns if _matches(pattern, url)]
        named = any(not _is_any(pattern) for pattern in matching)
        if not matching:
            raise Forbidden(f"{url.host} is none of the hosts that sources may come from")
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        if not named and not all(is_public(address) for address in addresses):
            raise Forbidden(f"{url.host} has an address that is not public")
        return addresses


def _matches(pattern: str, url: Url) -> bool:
    if fnmatchcase(url.host, pattern):
        return True
    return ":" in pattern and fnmatchcase(f"{url.host}:{url.port}", pattern)


def _is_any(pattern: str) -> bool:
    """Whether it says nothing about the host, though perhaps about the port."""
    bare = _SET.sub("*", pattern)
    return any(_NAMELESS.fullmatch(each) for each in (bare, bare.rpartition(":")[0]))


def is_public(address: str) -> bool:
    """Whether everybody on the internet would reach the same machine by it."""
    parsed = _embedded(ipaddress.ip_address(address.partition("%")[0]))
    if any(parsed in network for network in _LOCAL):
        return False
    return parsed.is_global and not parsed.is_multicast


def _embedded(address: _Address) -> _Address:
    """The address of version 4 that one of version 6 stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if any(address in network for network in _HOLDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)
