"""Files of a workspace: parts, whole files, directories, and what is refused (W7)."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from moorage.workspace.v1 import workspace_pb2

from services.common.errors import ShuttingDown
from services.workspace.files import FileAccessFailed
from services.workspace.providers.files import Tree
from tests.workspace.filing import Files, reason, refused
from tests.workspace.instances import Client, Holder, Machine

MEBIBYTE = 1024 * 1024


@pytest.fixture
async def root(client: Client, machine: Machine) -> Path:
    """A supplied directory."""
    return Path((await client.adopt(machine.supplied())).root)


@pytest.fixture
async def files(client: Client, holder: Holder, root: Path) -> Files:
    """Its files, with the grant of the session's holder."""
    return Files(client, await holder.acquire())


@pytest.fixture
def outside(machine: Machine) -> Path:
    """A directory beside the workspace, inside the instance's root."""
    path = machine.supplied("outside")
    (path / "secret").write_bytes(b"outside")
    return path


async def test_parts_of_a_file_are_read(files: Files, root: Path) -> None:
    (root / "f").write_bytes(b"0123456789")
    assert await files.part("f") == workspace_pb2.ReadFileResponse(data=b"0123456789", size=10)
    assert await files.part("f", offset=3, limit=4) == workspace_pb2.ReadFileResponse(data=b"3456", size=10)
    for offset in (10, 11, 2**62):
        assert await files.part("f", offset=offset) == workspace_pb2.ReadFileResponse(size=10)
    assert await files.read(str(root / "f")) == b"0123456789"
    (root / "x").mkdir()
    assert await files.read("./x//../f") == b"0123456789"


async def test_a_part_has_a_mebibyte_at_most(files: Files, root: Path) -> None:
    (root / "big").write_bytes(bytes(MEBIBYTE + 5))
    for limit in (0, MEBIBYTE, MEBIBYTE + 1):
        part = await files.part("big", limit=limit)
        assert (len(part.data), part.size) == (MEBIBYTE, MEBIBYTE + 5)
    assert len((await files.part("big", offset=MEBIBYTE)).data) == 5


async def test_a_file_is_made_with_its_directories_and_replaced(files: Files, root: Path) -> None:
    assert await files.write("a/b/c.txt", b"first") == 5
    assert await files.write(f"{root}/a/b/c.txt", b"second") == 6
    assert (root / "a/b/c.txt").read_bytes() == b"second"
    assert await files.write("a/empty", b"") == 0
    assert _listed(root / "a/b") == ["c.txt"]
    assert stat.S_IMODE((root / "a/b/c.txt").stat().st_mode) == 0o666 & ~_umask()


async def test_a_replaced_file_keeps_its_mode_and_owner(files: Files, root: Path) -> None:
    script = root / "run.sh"
    script.write_bytes(b"old")
    script.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(script, 1234, 2345)
    before = script.stat()
    await files.write("run.sh", b"new")
    after = script.stat()
    assert script.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


async def test_readers_see_one_content_or_the_other(files: Files, root: Path) -> None:
    await files.write("f", b"old" * 1000)
    with (root / "f").open("rb") as reader:
        assert reader.read(3) == b"old"
        await files.write("f", b"new")
        assert reader.read() == b"old" * 999
    assert (root / "f").read_bytes() == b"new"


async def test_links_that_stay_inside_are_followed(files: Files, root: Path) -> None:
    (root / "real/deep").mkdir(parents=True)
    (root / "real/f").write_bytes(b"inside")
    (root / "relative").symlink_to("real/deep/..")
    (root / "absolute").symlink_to(root / "real")
    (root / "file").symlink_to("absolute/f")
    for path in ("relative/f", "absolute/f", "file", "real/deep/../f", "absolute/deep/../../file"):
        assert await files.read(path) == b"inside"
    await files.write("file", b"through")
    assert (root / "real/f").read_bytes() == b"through"
    assert (root / "file").is_symlink()
    (root / "dangling").symlink_to("made/new")
    await files.write("dangling", b"made")
    assert (root / "made/new").read_bytes() == b"made"


async def test_nothing_outside_is_reached(files: Files, root: Path, outside: Path) -> None:
    (root / "directory").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "up").symlink_to("..")
    (root / "dangling").symlink_to("../outside/new")
    for path in (
        "../outside/secret",
        str(outside / "secret"),
        "/etc/passwd",
        f"{root}/../outside/secret",
        f"{root}x/secret",
        "directory/secret",
        "file",
        "up/outside/secret",
        "dangling",
    ):
        for call in (files.read(path), files.write(path, b"x"), files.names(path)):
            error = await refused(call)
            assert (error.reason_name, error.metadata["field"]) == ("PATH_OUTSIDE_ROOT", "path"), path
    assert _listed(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"outside"


async def test_what_is_no_file_is_neither_opened_nor_replaced(files: Files, root: Path) -> None:
    (root / "d").mkdir()
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    writer = os.open(root / "fifo", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"kept")
    for path in ("d", "d/", "fifo", "socket"):
        for call in (files.read(path), files.write(path, b"x")):
            error = await refused(call)
            assert (error.reason_name, error.metadata["path"]) == ("NOT_A_FILE", path)
    assert os.read(writer, 10) == b"kept"
    os.close(writer)
    assert _listed(root) == ["d", "fifo", "socket"]


async def test_what_is_missing_or_no_directory_is_told(files: Files, root: Path) -> None:
    (root / "f").write_bytes(b"")
    (root / "nowhere").symlink_to("missing")
    (root / "circle").symlink_to("circle")
    for path in ("missing", "missing/f", "nowhere"):
        assert await reason(files.read(path)) == "FILE_NOT_FOUND"
        assert await reason(files.names(path)) == "FILE_NOT_FOUND"
    for call in (files.names("f"), files.read("f/g"), files.write("f/g", b""), files.read("f/")):
        assert await reason(call) == "NOT_A_DIRECTORY"
    for path in ("circle", "n" * 256):
        error = await refused(files.read(path))
        assert (error.reason_name, error.metadata["field"]) == ("INVALID_FIELD", "path")


async def test_a_write_that_fails_at_the_end_leaves_nothing(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    descriptor = os.open(root, os.O_PATH)
    tree = Tree(descriptor, str(root))
    for name in ("f", "new"):
        with pytest.raises(FileAccessFailed) as full:
            tree.replace(name, b"new", _raising(OSError(errno.ENOSPC, "no space left")))
        assert full.value.metadata == {"path": name, "cause": "no space left"}
        with pytest.raises(ShuttingDown):
            tree.replace(name, b"new", _raising(ShuttingDown()))
    os.close(descriptor)
    assert _listed(root) == ["f"]
    assert (root / "f").read_bytes() == b"old"


async def test_bad_input_names_its_field(files: Files) -> None:
    for call, field in (
        (files.write("", b""), "path"),
        (files.write("nul\0", b""), "path"),
        (files.write("p" * 4097, b""), "path"),
        (files.write("big", bytes(MEBIBYTE + 1)), "data"),
        (files.read(""), "path"),
        (files.part("f", offset=-1), "offset"),
        (files.part("f", limit=-1), "limit"),
        (files.page("d\0"), "path"),
        (files.page(page_size=-1), "page_size"),
        (files.page(page_token="nonsense"), "page_token"),
    ):
        assert (await refused(call)).metadata["field"] == field


async def test_a_directory_is_listed_in_pages(files: Files, root: Path) -> None:
    (root / "d").mkdir()
    (root / "f").write_bytes(b"12345")
    os.utime(root / "f", ns=(0, 1_500_000_000_123_456_789))
    (root / "l").symlink_to("f")
    os.mkfifo(root / "p")
    (root / "a\nb").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")
    pages = [page async for page in files.pages("", 2)]
    assert [[entry.name for entry in page.entries] for page in pages] == [
        ["a\nb", "d"],
        ["f", "l"],
        ["p", "\ufffd"],
    ]
    entries = {entry.name: entry for page in pages for entry in page.entries}
    assert [entries[name].type for name in "dflp"] == [
        workspace_pb2.FILE_TYPE_DIRECTORY,
        workspace_pb2.FILE_TYPE_FILE,
        workspace_pb2.FILE_TYPE_SYMLINK,
        workspace_pb2.FILE_TYPE_UNSPECIFIED,
    ]
    assert [entries[name].size for name in "dfl"] == [0, 5, 0]
    assert entries["f"].modify_time.ToNanoseconds() == 1_500_000_000_123_456_789
    assert await files.names(".") == await files.names(str(root)) == list(entries)


async def test_a_token_is_good_for_its_directory(files: Files, root: Path) -> None:
    for name in ("d/1", "d/2", "e/1", "e/2"):
        await files.write(name, b"")
    token = (await files.page("d", page_size=1)).next_page_token
    assert [entry.name for entry in (await files.page("d", page_token=token)).entries] == ["2"]
    assert (await refused(files.page("e", page_token=token))).metadata["field"] == "page_token"


def _raising(error: Exception) -> Callable[[], None]:
    def go_ahead() -> None:
        raise error

    return go_ahead


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _listed(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
