"""Checks, ids, page tokens, addresses, the project of a call, and how errors are made."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, cast

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from moorage.common.v1.errors_pb2 import ErrorReason

from services.common import errors, validation
from services.common.addresses import Address
from services.common.errors import FailedPrecondition, InvalidArgument, MoorageError, StartupRefused
from services.common.pages import PageToken, page_size
from services.common.project import project_of
from services.common.status import CODES, DETAILS_KEY, code_of, to_rpc_status, to_status


class BerthTaken(FailedPrecondition):
    """berth {berth} is taken
    until {until}
    """

    reason = ErrorReason.ERROR_REASON_LEASE_HELD


def test_the_docstring_is_the_message_and_the_arguments_are_the_metadata() -> None:
    error = BerthTaken(berth=7, until=datetime(2024, 5, 1, tzinfo=UTC), retry_after=3, dry=True, note=None)
    assert str(error) == "berth 7 is taken until 2024-05-01T00:00:00Z"
    assert error.metadata == {"berth": "7", "until": "2024-05-01T00:00:00Z", "dry": "true", "note": ""}
    assert (error.reason_name, error.retry_after) == ("LEASE_HELD", 3)


def test_a_missing_argument_is_a_fault_of_the_caller() -> None:
    with pytest.raises(TypeError, match="BerthTaken needs the arguments until"):
        BerthTaken(berth=7)


def test_an_error_without_a_docstring_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="needs a docstring"):
        type("Silent", (FailedPrecondition,), {})


def test_braces_in_a_value_stay_as_they_are() -> None:
    assert str(BerthTaken(berth="{until}", until="{0}")) == "berth {until} is taken until {0}"


def test_every_kind_has_a_code_of_its_own() -> None:
    kinds = [kind for kind in MoorageError.__subclasses__() if kind.__module__ == errors.__name__]
    assert set(kinds) == set(CODES)
    assert len(set(CODES.values())) == len(CODES)
    assert code_of(errors.ShuttingDown()) is grpc.StatusCode.UNAVAILABLE


def test_a_kind_of_its_own_sends_no_reason() -> None:
    assert not to_rpc_status(FailedPrecondition(description="not now")).details


@given(st.text(max_size=50_000))
def test_a_status_stays_small_whatever_it_is_about(text: str) -> None:
    error = InvalidArgument.of(text[:100], text)
    status = to_status(error)
    [(key, value)] = status.trailing_metadata or ()
    assert key == DETAILS_KEY
    assert len(value) + 3 * len(status.details.encode()) < 8192


def test_lone_surrogates_do_not_break_a_status() -> None:
    assert to_rpc_status(InvalidArgument.of("prompt", "\ud800")).message == "prompt: ?"


@pytest.mark.parametrize("value", ["a", "A-z_9", "x" * 128])
def test_good_ids_pass(value: str) -> None:
    assert validation.check_id("session_id", value) == value


@pytest.mark.parametrize("value", ["", "a b", "ü", "a/b", "x" * 129, "a\n", "\0", "٣"])
def test_bad_ids_name_the_field(value: str) -> None:
    with pytest.raises(InvalidArgument, match="session_id: must be 1 to 128"):
        validation.check_id("session_id", value)


def test_minted_ids_are_good_and_new() -> None:
    minted = {validation.mint_id("turn") for _ in range(1000)}
    assert len(minted) == 1000
    assert all(validation.check_id("turn_id", value).startswith("turn_") for value in minted)
    assert validation.check_or_mint_id("turn_id", "mine", "turn") == "mine"


@pytest.mark.parametrize("value", ["", "Blue", "a_b", "x" * 64, "a\n"])
def test_bad_projects_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match="project: must be 1 to 63"):
        validation.check_project(value)


def test_request_ids_are_bounded() -> None:
    assert validation.check_request_id("") == ""
    assert validation.check_request_id("ü" * 255)
    with pytest.raises(InvalidArgument, match="request_id: must have at most 255"):
        validation.check_request_id("x" * 256)
    with pytest.raises(InvalidArgument, match="U\\+0000"):
        validation.check_request_id("a\0")


def test_sizes_are_in_bytes_for_texts() -> None:
    validation.check_size("prompt", "ü" * 5, 10)
    with pytest.raises(InvalidArgument, match="prompt: has 12 bytes, at most 10 are accepted"):
        validation.check_size("prompt", "ü" * 6, 10)
    with pytest.raises(InvalidArgument, match="blocks: has 3 items"):
        validation.check_size("blocks", [1, 2, 3], 2, "items")


@pytest.mark.parametrize("value", ["", "  ", "\n"])
def test_empty_texts_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match="prompt: must not be empty"):
        validation.check_present("prompt", value)


@pytest.mark.parametrize("value", [1.9, 10.1, float("nan"), float("inf")])
def test_numbers_outside_of_the_range_are_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="ttl: must be from 2 to 10"):
        validation.check_range("ttl", value, 2, 10)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"]), min_size=1), st.integers(0, 2**63 - 1))
def test_page_tokens_come_back_as_they_were(name: str, number: int) -> None:
    token = PageToken("sessions/blue", (name, number)).encode()
    assert PageToken.decode(token, "sessions/blue", (str, int)) == PageToken("sessions/blue", (name, number))


def forged(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "%%%",
        "A" * 5000,
        forged({}),
        forged([]),
        forged(["turns"]),
        forged(["turns", 1]),
        forged(["turns", "a", "b"]),
        forged(["turns", True]),
        forged(["turns", "a\0"]),
        forged(["turns", "\ud800"]),
        PageToken("sessions", ("a",)).encode(),
    ],
)
def test_bad_page_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidArgument, match="page_token: is not a token that this listing gave"):
        PageToken.decode(token, "turns")


@pytest.mark.parametrize("number", [2**63, -(2**63), True])
def test_numbers_that_no_column_holds_are_refused(number: int) -> None:
    with pytest.raises(InvalidArgument):
        PageToken.decode(forged(["turns", number]), "turns", (int,))


def test_no_page_token_is_the_first_page() -> None:
    assert PageToken.decode("", "turns") is None


def test_page_sizes() -> None:
    assert [page_size("page_size", asked) for asked in (0, 1, 1000, 5000)] == [50, 1, 1000, 1000]
    with pytest.raises(InvalidArgument, match="page_size: must not be negative"):
        page_size("page_size", -1)


@pytest.mark.parametrize("text", ["owner:7800", "127.0.0.1:0", "[::1]:7800", "a.b-c:65535"])
def test_addresses_read_and_write_alike(text: str) -> None:
    assert str(Address.parse(text)) == text


def test_a_port_may_be_left_out_where_there_is_a_default() -> None:
    assert Address.parse("owner", 7800) == Address("owner", 7800)
    assert Address.parse("[::1]", 7800) == Address("::1", 7800)
    assert Address("owner", 0).with_port(5) == Address("owner", 5)
    assert Address("owner", 7).with_port(5) == Address("owner", 7)


class Metadata:
    """The part of a call's context that says the project."""

    def __init__(self, *values: str) -> None:
        self._values = values

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("user-agent", "test"), *(("moorage-project", value) for value in self._values)]


def project(*values: str) -> str:
    return project_of(cast("grpc.aio.ServicerContext[Any, Any]", Metadata(*values)))


def test_the_project_comes_from_the_metadata() -> None:
    assert project() == "default"
    assert project("blue") == "blue"
    assert project("blue", "blue") == "blue"


@pytest.mark.parametrize("values", [("",), ("Blue",), ("a", "b")])
def test_a_bad_project_is_named(values: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument, match="moorage-project"):
        project(*values)


def test_a_refusal_to_start_is_no_answer_to_a_call() -> None:
    assert not issubclass(StartupRefused, MoorageError)


@pytest.mark.parametrize(("seconds", "nanos"), [(0, 1_000_000_000), (1, -1), (-1, 1), (0, -2_000_000_000)])
def test_what_is_no_duration(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidArgument, match="ttl: is not a duration"):
        validation.seconds_of("ttl", Duration(seconds=seconds, nanos=nanos))


def test_durations_of_either_sign_and_any_length() -> None:
    assert validation.seconds_of("ttl", Duration(seconds=-1, nanos=-500_000_000)) == -1.5
    assert validation.seconds_of("ttl", Duration(seconds=315_576_000_001)) == 315_576_000_001.0
