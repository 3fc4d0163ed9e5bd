"""Archives, good and bad, as a hand would pack them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@dataclass(frozen=True)
class Entry:
    """A member: `kind` is a type of tarfile's; `target` of links."""

    name: str
    kind: bytes = tarfile.REGTYPE
    content: bytes = b""
    target: str = ""
    mode: int = 0o644


def tar(entries: Sequence[Entry]) -> bytes:
    """A tar archive of these, in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.mode = entry.kind, entry.target, entry.mode
            info.mtime = 1_700_000_000
            info.size = len(entry.content) if entry.kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(entry.content))
    return buffer.getvalue()


def zipped(entries: Sequence[Entry]) -> bytes:
    """A zip archive of those that one can hold: files, directories, symbolic links and devices."""
    buffer = io.BytesIO()
    kinds = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.CHRTYPE: stat.S_IFCHR, tarfile.DIRTYPE: stat.S_IFDIR}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.name + ("/" if entry.kind == tarfile.DIRTYPE else ""))
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (kinds.get(entry.kind, stat.S_IFREG) | entry.mode) << 16
            archive.writestr(info, entry.target or entry.content)
    return buffer.getvalue()
