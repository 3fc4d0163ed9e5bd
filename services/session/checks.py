"""What clients may ask for (defaults and limits of the contract). InvalidArgument names the field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from google.protobuf.message import Message
from moorage.common.v1 import content_pb2, record_pb2, turn_pb2
from moorage.session.v1 import session_pb2

from services.common.errors import InvalidArgument
from services.common.validation import check_present, check_size, check_text
from services.session.sessions import ApprovalPolicy
from services.session.turns import IfBusy

MAX_PROMPT: Final = 256 * 1024
# The encoding of a block may be larger than its content.
MAX_BLOCKS: Final = 1000
_MAX_LABELS: Final = 64
_MAX_LABEL_KEY: Final = 63
_MAX_LABEL_VALUE: Final = 255
_MAX_VARIABLES: Final = 128
_MAX_ENVIRONMENT: Final = 32 * 1024
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_prompt(field: str, prompt: Sequence[content_pb2.ContentBlock]) -> bytes:
    """A prompt as it is stored: 1 to 1000 blocks, each with content, at most 256 KiB in all."""
    if not prompt:
        raise InvalidArgument.of(field, "must not be empty")
    check_size(field, prompt, MAX_BLOCKS, "blocks")
    for index, block in enumerate(prompt):
        _check_block(f"{field}[{index}]", block)
    size = sum(map(_size_of, prompt))
    if size > MAX_PROMPT:
        raise InvalidArgument.of(field, f"has {size} bytes, at most {MAX_PROMPT} are accepted")
    return stored(record_pb2.UserMessage(content=prompt))


def stored(checked: Message) -> bytes:
    """A checked message as it is stored: without the fields that this version does not know.

    Nobody has looked at those; they could be of any size, and come back with every read.
    """
    known = type(checked)()
    known.CopyFrom(checked)
    known.DiscardUnknownFields()
    return known.SerializeToString()


def check_labels(field: str, labels: Mapping[str, str]) -> dict[str, str]:
    """At most 64 labels; keys of 1 to 63, values of at most 255 characters."""
    check_size(field, labels, _MAX_LABELS, "labels")
    for key, value in labels.items():
        check_text(field, key)
        if not 1 <= len(key) <= _MAX_LABEL_KEY:
            raise InvalidArgument.of(field, f"the key {key[:80]!r} has not 1 to {_MAX_LABEL_KEY} characters")
        check_text(f"{field}.{key}", value)
        if len(value) > _MAX_LABEL_VALUE:
            raise InvalidArgument.of(f"{field}.{key}", f"has more than {_MAX_LABEL_VALUE} characters")
    return dict(labels)


def check_environment(field: str, environment: Mapping[str, str]) -> None:
    """Variables of a process: usable names, at most 32 KiB in all."""
    check_size(field, environment, _MAX_VARIABLES, "variables")
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise InvalidArgument.of(field, f"{name[:80]!r} is no name of a variable")
        check_text(f"{field}.{name}", value)
    size = _bytes_of([*environment.keys(), *environment.values()])
    if size > _MAX_ENVIRONMENT:
        raise InvalidArgument.of(field, f"has {size} bytes, at most {_MAX_ENVIRONMENT} are accepted")


def check_name(field: str, name: str) -> str:
    """1 to 64 of `A-Z a-z 0-9 _ -`."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument.of(field, "must be 1 to 64 of A-Z a-z 0-9 _ -")
    return name


def check_optional_name(field: str, name: str) -> str:
    """Empty, or 1 to 64 of `A-Z a-z 0-9 _ -`."""
    return check_name(field, name) if name else ""


def check_approval_policy(field: str, policy: turn_pb2.ApprovalPolicy.ValueType) -> ApprovalPolicy:
    """The policy to store; without one users are asked."""
    match policy:
        case turn_pb2.APPROVAL_POLICY_UNSPECIFIED | turn_pb2.APPROVAL_POLICY_ASK:
            return ApprovalPolicy.ASK
        case turn_pb2.APPROVAL_POLICY_ALLOW:
            return ApprovalPolicy.ALLOW
        case turn_pb2.APPROVAL_POLICY_DENY:
            return ApprovalPolicy.DENY
        case _:
            raise InvalidArgument.of(field, f"{int(policy)} is no approval policy")


def check_if_busy(field: str, if_busy: session_pb2.IfBusy.ValueType) -> IfBusy:
    """What is asked for; without it a busy session refuses."""
    match if_busy:
        case session_pb2.IF_BUSY_UNSPECIFIED | session_pb2.IF_BUSY_REJECT:
            return IfBusy.REJECT
        case session_pb2.IF_BUSY_ENQUEUE:
            return IfBusy.ENQUEUE
        case session_pb2.IF_BUSY_INTERRUPT:
            return IfBusy.INTERRUPT
        case _:
            raise InvalidArgument.of(field, f"{int(if_busy)} is no way to meet a busy session")


def _check_block(field: str, block: content_pb2.ContentBlock) -> None:
    match block.WhichOneof("block"):
        case "text":
            _check_filled(f"{field}.text.text", block.text.text)
        case "image":
            _check_media(f"{field}.image", block.image.mime_type, block.image.data)
        case "audio":
            _check_media(f"{field}.audio", block.audio.mime_type, block.audio.data)
        case "resource_link":
            check_present(f"{field}.resource_link.uri", block.resource_link.uri)
        case "resource":
            check_present(f"{field}.resource.uri", block.resource.uri)
            if block.resource.WhichOneof("content") is None:
                raise InvalidArgument.of(f"{field}.resource", "must have a text or a blob")
        case _:
            raise InvalidArgument.of(field, "must have exactly one kind of content")


def _check_filled(field: str, value: str) -> None:
    """A text of which something can be seen."""
    if not value.strip():
        raise InvalidArgument.of(field, "must not be empty")


def _check_media(field: str, mime_type: str, data: bytes) -> None:
    check_present(f"{field}.mime_type", mime_type)
    if not data:
        raise InvalidArgument.of(f"{field}.data", "must not be empty")


def _size_of(block: content_pb2.ContentBlock) -> int:
    """Bytes of content, without what the encoding adds."""
    link, resource = block.resource_link, block.resource
    texts = (
        block.text.text,
        block.image.mime_type,
        block.audio.mime_type,
        *(link.uri, link.name, link.mime_type),
        *(resource.uri, resource.mime_type, resource.text),
    )
    return _bytes_of(texts) + len(block.image.data) + len(block.audio.data) + len(resource.blob)


def _bytes_of(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) for text in texts)
