"""Which addresses sources can have, and where they may lead to (W10)."""

from __future__ import annotations

import socket

import pytest

from services.workspace.sources.urls import BadUrl, Forbidden, Hosts, is_public, parse


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://example.org/a.tar.gz?token=1", "example.org", 443),
        ("http://EXAMPLE.org:8080/x", "example.org", 8080),
        ("http://[::1]/x", "::1", 80),
    ],
)
def test_what_can_be_asked_for(text: str, host: str, port: int) -> None:
    url = parse(text)
    assert (url.host, url.port) == (host, port)
    assert "token" not in str(url)


def test_files() -> None:
    assert parse("file:///a%20b/c").path == "/a b/c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x",
        "ext::sh -c touch",
        "ssh://host/x",
        "git://host/x",
        "git@host:x",
        "https://user:secret@host/x",
        "https://user@host/x",
        "https:///x",
        "https://-option/x\n",
        "https://host/ x",
        "https://host\\@other/x",
        "https://host/x#fragment",
        "https://host:port/x",
        "https://h\u00f6st/x",
        "file://host/x",
        "file://relative",
        "file:///x%00y",
        "https://" + "h" * 3000,
    ],
)
def test_what_cannot(text: str) -> None:
    with pytest.raises(BadUrl) as refused:
        parse(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "::10.0.0.1",
        "::127.0.0.1",
        "::ffff:0:10.0.0.1",
        "fec0::1",
    ],
)
def test_what_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34"]
)
def test_what_is(address: str) -> None:
    assert is_public(address)


def test_loopback_has_to_be_named() -> None:
    url = parse("http://localhost:8080/x")
    with pytest.raises(Forbidden, match="not public"):
        Hosts(("*",)).addresses(url)
    with pytest.raises(Forbidden, match="none of the hosts"):
        Hosts(()).addresses(url)
    with pytest.raises(Forbidden):
        Hosts(("*", "localhost:8081", "*.localhost")).addresses(url)
    for pattern in ("localhost", "local*", "localhost:8080"):
        assert "127.0.0.1" in Hosts((pattern,)).addresses(url)


@pytest.mark.parametrize(
    "pattern", ["*:8080", "*:*", "**:80*", "?*:8080", "[0-9:]*:8080", "*[a-z0-9]", "*.*", "*.*:8080"]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::8080]"])
def test_a_pattern_that_names_no_host_is_for_public_ones(pattern: str, host: str) -> None:
    with pytest.raises(Forbidden):
        Hosts((pattern,)).addresses(parse(f"http://{host}:8080/x"))
    public = Hosts((pattern,)).addresses(parse("http://93.184.216.34:8080/x"))
    assert public == ["93.184.216.34"]


def test_a_pattern_is_for_its_port() -> None:
    for pattern in ("*:443", "*443", "93.184.216.34:443"):
        with pytest.raises(Forbidden, match="none of the hosts"):
            Hosts((pattern,)).addresses(parse("http://93.184.216.34:80/x"))
    for pattern, host in (("::1", "::1"), ("10.*", "10.1.2.3"), ("10.1.2.3:80", "10.1.2.3")):
        written = f"[{host}]" if ":" in host else host
        assert Hosts((pattern,)).addresses(parse(f"http://{written}/")) == [host]


def test_numbers_in_other_forms_are_seen_through() -> None:
    for host in ("2130706433", "0x7f.1", "127.1"):
        with pytest.raises((Forbidden, socket.gaierror)):
            Hosts(("*",)).addresses(parse(f"http://{host}/"))
