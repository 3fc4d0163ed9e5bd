"""HTTP, as far as sources need it: each hop is judged by where it leads, and goes there and nowhere else."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urljoin, urlsplit

from services.workspace.sources.fetch.bounds import Rejected
from services.workspace.sources.urls import BadUrl, Hosts, Url, parse

_MOST_REDIRECTS: Final = 5
_TIMEOUT: Final = 30.0
_CHUNK: Final = 256 * 1024
_OK: Final = 200
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# What the server may think better of.
_PASSING: Final = frozenset({408, 425, 429})
_SERVER_ERRORS: Final = 500
_HEADERS: Final = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "git/2 (moorage)"}

Write = Callable[[bytes], object]


class NotNow(Exception):
    """It could not be had this time; the text says why."""


class _Connection(http.client.HTTPConnection):
    """A connection to one of the addresses that were judged, by whatever name the server is called."""

    def __init__(self, url: Url, addresses: list[str]) -> None:
        super().__init__(url.host, url.port, timeout=_TIMEOUT)
        self._addresses = addresses
        self._tls = ssl.create_default_context() if url.scheme == "https" else None

    def connect(self) -> None:
        plain = _connect(self._addresses, self.port)
        self.sock = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self.host)


@contextlib.contextmanager
def opened(url: Url, hosts: Hosts) -> Iterator[tuple[Url, http.client.HTTPResponse]]:
    """The answer to a GET, and where it came from after redirects.

    Rejected when there will never be one; Forbidden, OSError and HTTPException as they come.
    """
    for _ in range(_MOST_REDIRECTS + 1):
        connection = _Connection(url, hosts.addresses(url))
        with contextlib.closing(connection):
            split = urlsplit(url.text)
            target = (split.path or "/") + (f"?{split.query}" if split.query else "")
            connection.request("GET", target, headers=_HEADERS)
            response = connection.getresponse()
            if response.status not in _REDIRECTS:
                _check(url, response)
                yield url, response
                return
            url = _next(url, response.getheader("Location", ""))
    raise Rejected(f"{url.host} redirects more than {_MOST_REDIRECTS} times")


def download(url: Url, hosts: Hosts, most: int, write: Write) -> int:
    """Write what a URL leads to; how many bytes that were. Rejected above `most`."""
    with opened(url, hosts) as (_, response):
        declared = response.getheader("Content-Length", "")
        size = 0
        while data := response.read(_CHUNK):
            size += len(data)
            if size > most:
                raise Rejected(f"it is larger than {most} bytes")
            write(data)
        if declared.isdigit() and size != int(declared):
            raise NotNow(f"it ended after {size} of {declared} bytes")
        return size


def _connect(addresses: list[str], port: int) -> socket.socket:
    failure: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection((address, port), _TIMEOUT)
        except OSError as error:
            failure = error
    raise failure or OSError("it has no address")


def _check(url: Url, response: http.client.HTTPResponse) -> None:
    if response.status == _OK:
        return
    told = f"{url.host} answers {response.status} {response.reason}"
    if response.status in _PASSING or response.status >= _SERVER_ERRORS:
        raise NotNow(told)
    raise Rejected(told)


def _next(url: Url, location: str) -> Url:
    try:
        following = parse(urljoin(url.text, location).partition("#")[0])
    except BadUrl as error:
        raise Rejected(f"{url.host} redirects to what {error}") from error
    if following.is_local or (url.scheme, following.scheme) == ("https", "http"):
        raise Rejected(f"{url.host} redirects to {following.scheme}, which is less safe")
    return following
