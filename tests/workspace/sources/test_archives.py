"""Workspaces with the files of an archive: uploaded, fetched, or from a directory (W10)."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import tarfile
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2
from moorage.workspace.v1 import workspace_pb2

from services.common.database import Database
from services.common.errors import AlreadyExists, InvalidArgument
from tests.conditions import eventually
from tests.workspace.instances import Client, Machine, running
from tests.workspace.sources.archives import PACKINGS, Entry, tar, zipped
from tests.workspace.sources.servers import Site
from tests.workspace.sources.wishes import FAILED, READY, made, of_archive, ready, refused

FILES = [Entry("a/b", content=b"deep"), Entry("run", content=b"#!", mode=0o755)]
DATA = PACKINGS["gzip"](tar(FILES))
SUM = hashlib.sha256(DATA).hexdigest()


async def test_an_uploaded_one(client: Client) -> None:
    root = await ready(client, **of_archive(data=DATA))
    assert (root / "a" / "b").read_bytes() == b"deep"
    assert (root / "run").stat().st_mode & 0o777 == 0o755
    assert sorted(each.name for each in root.iterdir()) == ["a", "run"]
    archive = (await client.get()).spec.source.archive
    assert (archive.sha256, archive.WhichOneof("from")) == (SUM, None), "its bytes are not told again"
    await client.provision(provision=provision_pb2.ProvisionSpec(**of_archive(data=DATA, sha256=SUM.upper())))
    with pytest.raises(AlreadyExists):
        await client.provision(provision=provision_pb2.ProvisionSpec(**of_archive(data=zipped(FILES))))


async def test_fetched_ones(fetching: Client, site: Site, machine: Machine) -> None:
    site.files["/x.zip"] = zipped(FILES)
    site.redirects["/latest"] = site.url("/x.zip")
    (machine.root / "x.tar.xz").write_bytes(PACKINGS["xz"](tar(FILES)))
    urls = [f"{site.url('/x.zip')}?token=1", site.url("/latest"), f"file://{machine.root}/x.tar.xz"]
    for number, url in enumerate(urls):
        root = await ready(fetching, f"w{number}", **of_archive(url=url))
        assert (root / "a" / "b").read_bytes() == b"deep"


async def test_sums_are_checked(fetching: Client, site: Site) -> None:
    site.files["/x"] = DATA
    await ready(fetching, **of_archive(url=site.url("/x"), sha256=SUM))
    reason = await refused(fetching, "w2", **of_archive(url=site.url("/x"), sha256="0" * 64))
    assert reason == f"its source is refused: its SHA-256 is {SUM}, not {'0' * 64}"


async def test_what_is_not_to_be_had(fetching: Client, site: Site, machine: Machine) -> None:
    outside = machine.directory / "x"
    outside.write_bytes(DATA)
    (machine.root / "link").symlink_to(outside)
    (machine.root / "directory").mkdir()
    os.mkfifo(machine.root / "pipe")
    site.files["/bad"] = b"no archive"
    site.files["/evil"] = tar([Entry("../../escaped", content=b"x")])
    wishes = {
        site.url("/none"): "answers 404 Not Found",
        site.url("/bad"): "cannot be read as an archive",
        site.url("/evil"): "leads out of it",
        f"file://{outside}": "does not lie inside",
        f"file://{machine.root}/link": "does not lie inside",
        f"file://{machine.root}/directory": "directory is not a file",
        f"file://{machine.root}/pipe": "pipe is not a file",
        f"file://{machine.root}/none": "No such file or directory",
        "http://169.254.169.254/latest/meta-data": "none of the hosts",
    }
    for number, (url, words) in enumerate(wishes.items()):
        assert words in await refused(fetching, f"w{number}", **of_archive(url=url)), url
    assert not list(machine.directory.rglob("escaped"))


async def test_bounds(machine: Machine, site: Site) -> None:
    site.files["/large"] = tar([Entry("x", content=bytes(300_000))])
    site.files["/bomb"] = PACKINGS["gzip"](site.files["/large"])
    local = machine.root / "large"
    local.write_bytes(site.files["/large"])
    async with running(machine, source_hosts=(site.host,), source_bytes=200_000) as (client, _):
        for number, url in enumerate([site.url("/large"), site.url("/bomb"), f"file://{local}"]):
            reason = await refused(client, f"w{number}", **of_archive(url=url))
            assert "larger than 200000 bytes" in reason


async def test_what_takes_all_memory_is_refused(machine: Machine, site: Site) -> None:
    """A header that says it is large is read whole by who believes it: in a process with a bound."""
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    header.size = 400 << 20
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as archive:
        archive.addfile(header, io.BytesIO(bytes(header.size)))
    site.files["/x"] = packed.getvalue()
    async with running(machine, source_hosts=(site.host,), source_memory=200 << 20) as (client, _):
        reason = await refused(client, **of_archive(url=site.url("/x")))
    assert "more memory" in reason or "200 times" in reason


async def test_one_that_never_comes_ends_in_time(machine: Machine, site: Site) -> None:
    async with running(machine, source_hosts=(site.host,), source_timeout=1.0) as (client, _):
        workspace = await made(client, **of_archive(url=site.url("/hang")))
    assert (workspace.state, workspace.state_reason) == (FAILED, "its source was not there after 1 s")
    assert not fetchers(Path(workspace.root))


async def test_one_that_is_not_wanted_any_more_holds_nothing_up(fetching: Client, site: Site) -> None:
    response = await fetching.provision(
        provision=provision_pb2.ProvisionSpec(**of_archive(url=site.url("/hang")))
    )
    await asyncio.to_thread(site.hung.wait)
    await fetching.delete()
    gone = await fetching.settled()
    assert gone.state == workspace_pb2.WORKSPACE_STATE_DELETED
    assert not Path(response.workspace.root).exists()


async def test_a_fetch_that_is_killed_is_begun_anew(fetching: Client, site: Site) -> None:
    """Nothing of the first try is left in what becomes READY."""
    await fetching.provision(provision=provision_pb2.ProvisionSpec(**of_archive(url=site.url("/hang"))))
    await asyncio.to_thread(site.hung.wait)
    root = Path((await fetching.get()).root)
    [place] = root.iterdir()
    (place / "tree" / "half").write_bytes(b"x")
    site.files["/hang"] = DATA
    site.release.set()
    for process in fetchers(root):
        os.kill(process, signal.SIGKILL)
    workspace = await fetching.settled()
    assert workspace.state == READY, workspace.state_reason
    assert sorted(each.name for each in root.iterdir()) == ["a", "run"]


async def test_a_successor_begins_anew(machine: Machine, site: Site) -> None:
    async with running(machine, source_hosts=(site.host,)) as (client, _):
        await client.provision(provision=provision_pb2.ProvisionSpec(**of_archive(url=site.url("/hang"))))
        await asyncio.to_thread(site.hung.wait)
        root = Path((await client.get()).root)
        [first] = root.iterdir()
    await eventually(lambda: not fetchers(root), what="its process is dead")
    site.files["/hang"] = DATA
    async with running(machine, source_hosts=(site.host,)) as (client, _):
        assert (await client.settled()).state == READY
    assert not first.exists()
    assert (root / "a" / "b").read_bytes() == b"deep"


async def test_uploads_are_kept_no_longer_than_it_takes(client: Client, database: Database) -> None:
    for name in ("w1", "w2", "w3"):
        await ready(client, name, **of_archive(data=DATA))
    async with database.connection() as connection:
        kept = await connection.fetch("SELECT workspace_id FROM workspace.uploads")
    assert [row["workspace_id"] for row in kept] == ["w3"], "until the next one comes"


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({}, "provision.source.archive"),
        ({"data": bytes((768 << 10) + 1)}, "provision.source.archive.data"),
        ({"data": b"x", "sha256": "0" * 64}, "provision.source.archive.sha256"),
        ({"data": b"x", "sha256": "0"}, "provision.source.archive.sha256"),
        ({"url": "https://user:secret@example.org/x"}, "provision.source.archive.url"),
    ],
)
async def test_what_cannot_be_asked_for(client: Client, wish: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        await client.provision(provision=provision_pb2.ProvisionSpec(**of_archive(**wish)))
    assert [each.field for each in refusal.value.violations] == [field]


def fetchers(root: Path) -> list[int]:
    """The processes that fill this root."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if (process / "cwd").readlink() == root and b"sources/fetch" in (
                process / "cmdline"
            ).read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found
