"""Sources and set-up commands of the contract, to and from the domain's values."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_text
from services.workspace.exec.environment import check_wishes
from services.workspace.sources.results import Result
from services.workspace.sources.urls import BadUrl, Url, parse
from services.workspace.sources.wanted import Archive, Directory, Git, Setup, Source

_FIELD: Final = "provision.source"
_SETUP: Final = "provision.setup"
_MOST_DATA: Final = 768 * 1024
_SETUP_TIMEOUT: Final = 600.0
_LONGEST_SETUP: Final = 3600.0
_LONGEST_REF: Final = 255
_NO_REF: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-./]|[./]$|^@$")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def source_of(source: provision_pb2.WorkspaceSource) -> Source | None:
    """What is asked for, its fields checked."""
    match source.WhichOneof("kind"):
        case "git":
            return _git_of(source.git)
        case "archive":
            return _archive_of(source.archive)
        case "path":
            return Directory(check_text(f"{_FIELD}.path.directory", source.path.directory))
        case _:
            return None


def upload_of(source: provision_pb2.WorkspaceSource) -> bytes | None:
    """The archive that came with the request, if one did."""
    archive = source.archive
    return archive.data if archive.WhichOneof("from") == "data" else None


def source(wanted: Source | None) -> provision_pb2.WorkspaceSource | None:
    """The contract's source; of an uploaded archive its sum only."""
    match wanted:
        case Git():
            git = provision_pb2.GitSource(url=wanted.url, ref=wanted.ref, commit=wanted.commit)
            return provision_pb2.WorkspaceSource(git=git)
        case Archive():
            archive = provision_pb2.ArchiveSource(sha256=wanted.sha256)
            if wanted.url:
                archive.url = wanted.url
            return provision_pb2.WorkspaceSource(archive=archive)
        case Directory():
            return provision_pb2.WorkspaceSource(path=provision_pb2.PathSource(directory=wanted.path))
        case None:
            return None


def setup_of(command: provision_pb2.SetupCommand) -> Setup:
    """The command that is asked for, its fields checked."""
    if not command.command:
        raise InvalidArgument.of(f"{_SETUP}.command", "must name a program")
    wishes = check_wishes(command.inherit_environment, command.environment, _SETUP)
    return Setup(
        command=tuple(check_text(f"{_SETUP}.command", word) for word in command.command),
        inherited=wishes.inherited,
        environment=tuple(sorted(wishes.declared.items())),
        timeout=_timeout_of(command),
        network=_network_of(command.network),
    )


def setup(wanted: Setup | None) -> provision_pb2.SetupCommand | None:
    """The contract's command."""
    if wanted is None:
        return None
    timeout = Duration()
    timeout.FromNanoseconds(round(wanted.timeout * 1e9))
    return provision_pb2.SetupCommand(
        command=wanted.command,
        inherit_environment=wanted.inherited,
        environment=dict(wanted.environment),
        timeout=timeout,
        network=provision_pb2.NetworkPolicy.Value(f"NETWORK_POLICY_{wanted.network or 'UNSPECIFIED'}"),
    )


def setup_result(result: Result | None) -> workspace_pb2.SetupResult | None:
    """The contract's result."""
    if result is None:
        return None
    ended = workspace_pb2.ExecEnded(out_of_memory=result.out_of_memory)
    if result.timeout is not None:
        ended.timeout.after.FromNanoseconds(round(result.timeout * 1e9))
    elif result.exit_code is None:
        ended.signal = result.signal
    else:
        ended.exit_code = result.exit_code
    return workspace_pb2.SetupResult(ended=ended, output=result.output, truncated=result.truncated)


def _git_of(git: provision_pb2.GitSource) -> Git:
    parsed = _url_of(f"{_FIELD}.git.url", git.url)
    if "?" in parsed.text:
        raise InvalidArgument.of(f"{_FIELD}.git.url", "must not have a query")
    if git.ref and (len(git.ref.encode()) > _LONGEST_REF or _NO_REF.search(git.ref)):
        raise InvalidArgument.of(f"{_FIELD}.git.ref", "is not a name that a branch or tag can have")
    if git.commit and not _COMMIT.fullmatch(git.commit):
        raise InvalidArgument.of(f"{_FIELD}.git.commit", "must be a full commit id, in lower case")
    return Git(parsed.text, git.ref, git.commit)


def _archive_of(archive: provision_pb2.ArchiveSource) -> Archive:
    sha256 = archive.sha256.lower()
    if sha256 and not _SHA256.fullmatch(sha256):
        raise InvalidArgument.of(f"{_FIELD}.archive.sha256", "must be 64 hexadecimal digits")
    match archive.WhichOneof("from"):
        case "url":
            return Archive(_url_of(f"{_FIELD}.archive.url", archive.url).text, sha256)
        case "data":
            return Archive("", _check_data(archive.data, sha256))
        case _:
            raise InvalidArgument.of(f"{_FIELD}.archive", "must have a url or data")


def _check_data(data: bytes, sha256: str) -> str:
    if len(data) > _MOST_DATA:
        raise InvalidArgument.of(f"{_FIELD}.archive.data", f"must have at most {_MOST_DATA} bytes")
    found = hashlib.sha256(data).hexdigest()
    if sha256 not in {"", found}:
        raise InvalidArgument.of(f"{_FIELD}.archive.sha256", f"is not that of the data, {found}")
    return found


def _url_of(field: str, text: str) -> Url:
    try:
        return parse(text)
    except BadUrl as error:
        raise InvalidArgument.of(field, str(error)) from error


def _timeout_of(command: provision_pb2.SetupCommand) -> float:
    if not command.HasField("timeout"):
        return _SETUP_TIMEOUT
    seconds = command.timeout.ToNanoseconds() / 1e9
    if not 0 < seconds <= _LONGEST_SETUP:
        raise InvalidArgument.of(f"{_SETUP}.timeout", f"must be above 0 and at most {_LONGEST_SETUP:.0f} s")
    return seconds


def _network_of(policy: provision_pb2.NetworkPolicy.ValueType) -> str:
    if policy == provision_pb2.NETWORK_POLICY_UNSPECIFIED:
        return ""
    if policy not in provision_pb2.NetworkPolicy.values():
        raise InvalidArgument.of(f"{_SETUP}.network", "is none that this service knows")
    return provision_pb2.NetworkPolicy.Name(policy).removeprefix("NETWORK_POLICY_")
