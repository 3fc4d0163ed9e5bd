"""Archives never reach outside of where they are unpacked, and never take more than they may (W10)."""

from __future__ import annotations

import calendar
import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.workspace.sources.fetch.bounds import Bounds, Rejected
from services.workspace.sources.fetch.unpack import unpack
from tests.workspace.sources.archives import PACKINGS, Entry, tar, zipped

BOUNDS = Bounds(1 << 20, 1000, 1 << 30)
DIR, SYM, LINK, CHR, FIFO = (
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
)
GOOD = [
    Entry("a", DIR, mode=0o777),
    Entry("./a/run", content=b"#!/bin/sh\n", mode=0o6755),
    Entry("a/b/c", content=b"deep"),
    Entry("up", SYM, target="a/b/../run"),
    Entry("dangling", SYM, target="not/there/yet"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Where to unpack; what lies beside must stay as it is."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside").write_text("untouched")
    return tree


def unpacked(data: bytes, tree: Path, bounds: Bounds = BOUNDS) -> None:
    unpack(io.BytesIO(data), len(data), str(tree), bounds)


@pytest.mark.parametrize("packing", [*PACKINGS, "zip"])
def test_files_directories_and_links(tree: Path, packing: str) -> None:
    unpacked(zipped(GOOD) if packing == "zip" else PACKINGS[packing](tar(GOOD)), tree)
    assert (tree / "a" / "b" / "c").read_bytes() == b"deep"
    assert (tree / "up").read_bytes() == b"#!/bin/sh\n"
    assert (tree / "dangling").readlink() == Path("not/there/yet")
    assert stat.S_IMODE((tree / "a" / "run").stat().st_mode) == 0o755, "nothing of set-uid"
    assert stat.S_IMODE((tree / "a").stat().st_mode) & 0o022 == 0


def test_hard_links_and_dates(tree: Path) -> None:
    unpacked(tar([Entry("a/x", content=b"x"), Entry("b/y", LINK, target="a/x")]), tree)
    assert (tree / "a/x").samefile(tree / "b/y")
    assert (tree / "a/x").stat().st_mtime == 1_700_000_000


def test_the_last_of_a_name_counts(tree: Path) -> None:
    unpacked(tar([Entry("x", content=b"1"), Entry("y", LINK, target="x"), Entry("x", content=b"2")]), tree)
    assert ((tree / "x").read_bytes(), (tree / "y").read_bytes()) == (b"2", b"1")


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("/etc/x")],
        [Entry("../outside", content=b"changed")],
        [Entry("a/../../outside", content=b"changed")],
        [Entry("l", SYM, target="/etc")],
        [Entry("l", SYM, target="..")],
        [Entry("l", SYM, target="../outside")],
        [Entry("a/l", SYM, target="../..")],
        [Entry("p/a", SYM, target=".."), Entry("p/b", SYM, target="a/../outside")],
        [Entry("d/e", DIR), Entry("d/e/r", SYM, target="../.."), Entry("l", SYM, target="d/e/r/../outside")],
        [Entry("l", SYM, target="m"), Entry("m", SYM, target="l")],
        [Entry("dev", CHR)],
        [Entry("."), Entry("x")],
        [Entry("x", DIR), Entry("x")],
        [Entry("x"), Entry("x/y")],
        [Entry("/".join("d" * 200))],
        [Entry("n" * 300)],
    ],
    ids=lambda entries: ",".join(f"{each.name[:20]}>{each.target}" for each in entries),
)
def test_what_is_refused(tree: Path, entries: list[Entry]) -> None:
    for data in (tar(entries), zipped(entries)):
        with pytest.raises((Rejected, OSError)):
            unpacked(data, tree)
    assert (tree.parent / "outside").read_text() == "untouched"
    assert sorted(each.name for each in tree.parent.iterdir()) == ["outside", "tree"]


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("pipe", FIFO)],
        [Entry("h", LINK, target="../outside")],
        [Entry("h", LINK, target="/etc/passwd")],
        [Entry("l", SYM, target="x"), Entry("h", LINK, target="l")],
        [Entry("d", DIR), Entry("h", LINK, target="d")],
        [Entry("l", SYM, target="d"), Entry("l/x"), Entry("l", SYM, target="..")],
    ],
)
def test_what_only_a_tar_can_ask_for(tree: Path, entries: list[Entry]) -> None:
    with pytest.raises((Rejected, OSError)):
        unpacked(tar(entries), tree)
    assert (tree.parent / "outside").read_text() == "untouched"


def test_a_zip_without_dates(tree: Path) -> None:
    undated = bytearray(zipped([Entry("x", content=b"x")]))
    for header, offset in ((b"PK\x03\x04", 10), (b"PK\x01\x02", 12)):
        at = undated.index(header) + offset
        undated[at : at + 4] = bytes(4)
    unpacked(bytes(undated), tree)
    assert (tree / "x").read_bytes() == b"x"
    assert (tree / "x").stat().st_mtime == calendar.timegm((1980, 1, 1, 0, 0, 0))


@pytest.mark.parametrize("target", ["", "a\0b", "x" * 4096], ids=["empty", "NUL", "long"])
def test_targets_that_no_link_can_have(tree: Path, target: str) -> None:
    for data in (tar([Entry("l", SYM, target=target)]), zipped([Entry("l", SYM, target=target)])):
        if target != "a\0b" or data.startswith(b"PK"):
            with pytest.raises(Rejected, match="'l' has no target that a link can have"):
                unpacked(data, tree)


def test_a_circle_of_links_is_called_so(tree: Path) -> None:
    with pytest.raises(Rejected, match="in a circle"):
        unpacked(tar([Entry("l", SYM, target="m"), Entry("m", SYM, target="l")]), tree)


@pytest.mark.parametrize("packing", [*PACKINGS, "zip"])
def test_bombs_are_stopped_early(tree: Path, packing: str) -> None:
    zeros = [Entry("zeros", content=bytes(8 << 20))]
    data = zipped(zeros) if packing == "zip" else PACKINGS[packing](tar(zeros))
    with pytest.raises(Rejected, match="larger than 1048576 bytes"):
        unpacked(data, tree)
    assert sum(each.stat().st_size for each in tree.rglob("*")) <= BOUNDS.size + (1 << 18)


def test_too_high_a_ratio_is_refused_though_there_is_room(tree: Path) -> None:
    data = PACKINGS["bzip2"](tar([Entry("zeros", content=bytes(80 << 20))]))
    with pytest.raises(Rejected, match="more than 200 times"):
        unpacked(data, tree, Bounds(1 << 30, 10, 1 << 30))


def test_too_many_files(tree: Path) -> None:
    entries = [Entry(f"d{number}/f") for number in range(501)]
    with pytest.raises(Rejected, match="more than 1000 files"):
        unpacked(tar(entries), tree)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04nothing", b"\x1f\x8bnothing", b"x" * 2000])
def test_what_is_no_archive(tree: Path, data: bytes) -> None:
    with pytest.raises(Rejected, match="cannot be read as an archive"):
        unpacked(data, tree)


def test_what_is_cut_off(tree: Path) -> None:
    with pytest.raises(Rejected, match="cannot be read as an archive"):
        unpacked(PACKINGS["gzip"](tar([Entry("x", content=os.urandom(50_000))]))[:-30_000], tree)


names = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=4).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, DIR, SYM, LINK])
hostile = st.lists(st.builds(Entry, names, kinds, st.just(b"changed"), names), max_size=8)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile)
@example([Entry("a", SYM, target="b"), Entry("b", SYM, target=".."), Entry("a/x", content=b"changed")])
@example([Entry("a/b", SYM, target="../c"), Entry("c", SYM, target="a"), Entry("b", SYM, target="a/b/../..")])
def test_nothing_ever_comes_to_lie_outside(entries: list[Entry]) -> None:
    """Whatever the names and links: nothing beside the tree changes, and no link of a whole one leads out."""
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory, "1", "2", "3", "4", "tree")
        top.mkdir(parents=True)
        try:
            unpacked(tar(entries), top)
        except (Rejected, OSError):
            whole = False
        else:
            whole = True
        assert [each for each in _others(Path(directory), top) if not each.is_dir()] == []
        assert len(list(_others(Path(directory), top))) == 4
        if whole:
            for link in (each for each in top.rglob("*") if each.is_symlink()):
                assert Path(os.path.realpath(link)).is_relative_to(top), link


GOOD_ONES = [*(packing(tar(GOOD)) for packing in PACKINGS.values()), zipped(GOOD)]
changed = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(GOOD_ONES), changed, st.integers(0, 5000))
def test_what_is_broken_is_refused_or_read(data: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    broken = bytearray(data)
    for position, value in changes:
        broken[position % len(data)] = value
    numbered = True
    with tempfile.TemporaryDirectory() as directory:
        try:
            unpacked(bytes(broken[: len(data) - (cut % len(data) if cut > 4000 else 0)]), Path(directory))
        except Rejected:
            pass
        except OSError as error:
            numbered = error.errno is not None
    assert numbered, "it is of the disk"


def _others(directory: Path, top: Path) -> list[Path]:
    return [each for each in directory.rglob("*") if each != top and not each.is_relative_to(top)]
