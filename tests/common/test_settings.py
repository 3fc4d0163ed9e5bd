"""Settings: where they come from, and the one line that a bad one gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.common.addresses import Address
from services.common.settings import (
    AdvertiseAddress,
    DatabaseSettings,
    ListenAddress,
    ServiceSettings,
    load_settings,
)

URL = "postgresql://moorage:hunter2@127.0.0.1/moorage"


class HarbourSettings(ServiceSettings, DatabaseSettings, env_prefix="MOORAGE_HARBOUR_"):
    """The harbour."""

    journal_listen: ListenAddress = "127.0.0.1:7811"
    journal_advertise: AdvertiseAddress | None = None


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load_settings(HarbourSettings, argv)
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("moorage-harbour: ")
    assert text.count("\n") == 1
    assert "hunter2" not in text
    return text


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_DATABASE_URL", URL)


@pytest.mark.usefixtures("url")
def test_defaults_serve_on_loopback() -> None:
    settings = load_settings(HarbourSettings, [])
    assert settings.listeners() == {
        "listen": (Address("127.0.0.1", 7800), None),
        "journal_listen": (Address("127.0.0.1", 7811), None),
    }
    assert settings.max_message_bytes == 4 * 1024 * 1024
    assert settings.direct_url == URL
    assert "hunter2" not in repr(settings)


@pytest.mark.usefixtures("url")
def test_flags_come_before_the_services_variable_before_the_shared_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOORAGE_SHUTDOWN_GRACE", "1")
    assert load_settings(HarbourSettings, []).shutdown_grace == 1
    monkeypatch.setenv("MOORAGE_HARBOUR_SHUTDOWN_GRACE", "2")
    assert load_settings(HarbourSettings, []).shutdown_grace == 2
    assert load_settings(HarbourSettings, ["--shutdown-grace", "3"]).shutdown_grace == 3


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--listen", "7800"],
            "--listen (MOORAGE_HARBOUR_LISTEN, MOORAGE_LISTEN): '7800' is not HOST:PORT (got '7800')",
        ),
        (["--listen", "host:x"], "'host:x' has no port from 0 to 65535"),
        (["--listen", "host:65536"], "'host:65536' has no port from 0 to 65535"),
        (["--listen", "::1:7800"], "'::1:7800' is not HOST:PORT"),
        (["--shutdown-grace", "-1"], "--shutdown-grace (MOORAGE_HARBOUR_SHUTDOWN_GRACE"),
        (["--database-acquire-timeout", "0"], "greater than 0"),
        (["--log-level", "loud"], "'debug', 'info', 'warning' or 'error' (got 'loud')"),
        (["--nonsense", "1"], "unrecognized arguments: --nonsense 1"),
        (["--shutdown-grace"], "argument --shutdown-grace: expected one argument"),
        (["--database-url", "mysql://root:hunter2@h/x"], "must begin with postgresql://"),
    ],
)
def test_a_bad_flag_is_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert message in refusal(capsys, *argv)


@pytest.mark.usefixtures("url")
def test_a_bad_variable_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_INSECURE", "maybe")
    assert "--insecure (MOORAGE_INSECURE): " in refusal(capsys)


def test_a_missing_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys)
    assert "--database-url (MOORAGE_HARBOUR_DATABASE_URL, MOORAGE_DATABASE_URL) is required" in line


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("flag", ["--listen", "--journal-listen"])
@pytest.mark.parametrize("address", ["10.0.0.1:7800", "0.0.0.0:7800", "[::]:7800", "harbour.internal:7800"])
def test_beyond_loopback_needs_insecure(capsys: pytest.CaptureFixture[str], flag: str, address: str) -> None:
    line = refusal(capsys, flag, address)
    assert f"{flag}: {address} can be reached from other machines" in line
    assert "TLS and authentication are not available yet, so this needs --insecure" in line


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("flag", "advertise"), [("--listen", "--advertise"), ("--journal-listen", "--journal-advertise")]
)
def test_a_wildcard_needs_an_advertised_address(
    capsys: pytest.CaptureFixture[str], flag: str, advertise: str
) -> None:
    line = refusal(capsys, flag, "0.0.0.0:7800", "--insecure")
    assert f"say with {advertise} at which of them others reach it" in line
    load_settings(HarbourSettings, [flag, "0.0.0.0:7800", "--insecure", advertise, "harbour"])


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.1.2.3:7800", "[::1]:7800", "localhost:7800"])
def test_loopback_is_fine(address: str) -> None:
    assert load_settings(HarbourSettings, ["--listen", address]).listen == address


def test_settings_made_in_code_are_guarded_too() -> None:
    with pytest.raises(ValidationError, match="needs --insecure"):
        ServiceSettings(listen="10.0.0.1:7800")


def test_a_password_may_lie_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass/word @1\n")
    monkeypatch.setenv("MOORAGE_DATABASE_URL", "postgresql://moorage@one:5432,two:5433/moorage?x=1")
    monkeypatch.setenv("MOORAGE_DATABASE_PASSWORD_FILE", str(secret))
    settings = load_settings(HarbourSettings, [])
    assert settings.database_url == "postgresql://moorage:pass%2Fword%20%401@one:5432,two:5433/moorage?x=1"
    assert "pass" not in repr(settings).replace("password_file", "").replace(str(secret), "")


@pytest.mark.parametrize(
    ("url", "name", "words"),
    [
        (URL, "password", "must name a user, without a password"),
        ("postgresql://127.0.0.1/moorage", "password", "must name a user, without a password"),
        ("postgresql://moorage@127.0.0.1/moorage", "nowhere", "the password file cannot be read"),
    ],
)
def test_a_password_file_that_is_of_no_use(
    url: str, name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("secret")
    flags = ["--database-url", url, "--database-password-file", str(tmp_path / name)]
    assert words in refusal(capsys, *flags)
