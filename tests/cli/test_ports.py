"""Addresses for services that are about to start."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from services.cli.ports import PortTaken, all_free, choose


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of loopback on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_preferred_port_is_taken_or_replaced_by_a_free_one(taken: int, free: int) -> None:
    addresses = choose({"a": free, "b": taken}, {})
    assert addresses["a"] == f"127.0.0.1:{free}"
    assert addresses["b"] != f"127.0.0.1:{taken}"
    assert all_free(addresses.values())


def test_no_two_are_the_same(free: int) -> None:
    addresses = choose(dict.fromkeys("abc", free), dict.fromkeys("def", "127.0.0.1:0"))
    assert len(set(addresses.values())) == 6


def test_a_fixed_one_goes_before_the_preferred_port(free: int) -> None:
    assert choose({"a": free, "b": free}, {"b": f"127.0.0.1:{free}"})["b"] == f"127.0.0.1:{free}"


@pytest.mark.parametrize(
    ("host", "why"),
    [("127.0.0.1", "Address already in use"), ("192.0.2.1", "Cannot assign requested address")],
)
def test_a_fixed_one_that_cannot_be_had_is_refused_with_the_cause(taken: int, host: str, why: str) -> None:
    with pytest.raises(PortTaken, match=f"cannot listen on {host}:{taken}: {why}"):
        choose({}, {"a": f"{host}:{taken}"})


def test_ipv6_is_fine() -> None:
    address = choose({}, {"a": "[::1]:0"})["a"]
    assert address.startswith("[::1]:")
    assert all_free([address])


def test_a_taken_one_is_not_free(taken: int, free: int) -> None:
    assert all_free([f"127.0.0.1:{free}"])
    assert not all_free([f"127.0.0.1:{free}", f"127.0.0.1:{taken}"])
