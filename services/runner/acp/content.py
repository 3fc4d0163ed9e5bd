"""Content blocks: the contract's to the protocol's and back."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

from moorage.common.v1.content_pb2 import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from services.runner.acp.errors import UnsupportedContent
from services.runner.acp.library import schema
from services.runner.acp.lines import Message

# The block's field in the contract -> the agent's capability that it needs.
_NEEDED: Final = {"image": "image", "audio": "audio", "resource": "embedded_context"}


def acp_blocks(prompt: Iterable[ContentBlock], capabilities: schema.AgentCapabilities) -> list[Message]:
    """The prompt in the protocol's words; UnsupportedContent names the first block that the agent refuses."""
    return [_acp_block(index, block, capabilities) for index, block in enumerate(prompt)]


def proto_block(block: Any) -> ContentBlock:
    """A block of the schema as one of the contract; ValueError when its data are not Base64."""
    match block:
        case schema.TextContentBlock():
            return ContentBlock(text=TextContent(text=block.text))
        case schema.ImageContentBlock():
            return ContentBlock(image=ImageContent(mime_type=block.mime_type, data=_bytes(block.data)))
        case schema.AudioContentBlock():
            return ContentBlock(audio=AudioContent(mime_type=block.mime_type, data=_bytes(block.data)))
        case schema.ResourceContentBlock():
            mime_type = block.mime_type or ""
            return ContentBlock(
                resource_link=ResourceLink(uri=block.uri, name=block.name, mime_type=mime_type)
            )
        case schema.EmbeddedResourceContentBlock():
            return ContentBlock(resource=_proto_resource(block.resource))
    raise ValueError(f"no content block: {type(block).__name__}")


def _acp_block(index: int, block: ContentBlock, capabilities: schema.AgentCapabilities) -> Message:
    kind = block.WhichOneof("block")
    if kind is None:
        raise UnsupportedContent(f"prompt[{index}] is of no known kind")
    needed = _NEEDED.get(kind)
    if needed and not getattr(capabilities.prompt_capabilities, needed, False):
        raise UnsupportedContent(f"prompt[{index}]: the agent does not take blocks of kind {kind}")
    if kind == "text":
        return {"type": "text", "text": block.text.text}
    if kind == "resource_link":
        return _acp_link(block.resource_link)
    if kind == "resource":
        return {"type": "resource", "resource": _acp_resource(block.resource)}
    media = block.image if kind == "image" else block.audio
    return {"type": kind, "mimeType": media.mime_type, "data": _text(media.data)}


def _acp_link(link: ResourceLink) -> Message:
    name = link.name or link.uri.rstrip("/").rpartition("/")[2] or link.uri
    return {"type": "resource_link", "uri": link.uri, "name": name, **_mime_type(link.mime_type)}


def _acp_resource(resource: EmbeddedResource) -> Message:
    blob = resource.WhichOneof("content") == "blob"
    content = {"blob": _text(resource.blob)} if blob else {"text": resource.text}
    return {"uri": resource.uri, **_mime_type(resource.mime_type), **content}


def _proto_resource(resource: schema.TextResourceContents | schema.BlobResourceContents) -> EmbeddedResource:
    mime_type = resource.mime_type or ""
    if isinstance(resource, schema.TextResourceContents):
        return EmbeddedResource(uri=resource.uri, mime_type=mime_type, text=resource.text)
    return EmbeddedResource(uri=resource.uri, mime_type=mime_type, blob=_bytes(resource.blob))


def _mime_type(mime_type: str) -> Message:
    return {"mimeType": mime_type} if mime_type else {}


def _bytes(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
