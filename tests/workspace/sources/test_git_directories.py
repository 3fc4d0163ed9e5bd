"""Git repositories of the instance's machine: nothing that lies in one leads out of it (W10)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.workspace.instances import Machine, running
from tests.workspace.sources.servers import GIT, Repository, git
from tests.workspace.sources.wishes import of_git, ready, refused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")


def _git_file(secret: Path, trap: Path) -> None:
    (trap / ".git").write_text(f"gitdir: {secret}\n")


def _git_link(secret: Path, trap: Path) -> None:
    (trap / ".git").symlink_to(secret)


def _copy(secret: Path, trap: Path) -> Path:
    return Path(shutil.copytree(secret, trap / ".git"))


def _objects_link(secret: Path, trap: Path) -> None:
    repository = _copy(secret, trap)
    shutil.rmtree(repository / "objects")
    (repository / "objects").symlink_to(secret / "objects")


def _alternates(secret: Path, trap: Path) -> None:
    objects = _copy(secret, trap) / "objects"
    shutil.rmtree(objects)
    (objects / "info").mkdir(parents=True)
    (objects / "info" / "alternates").write_text(f"{secret / 'objects'}\n")


def _commondir(secret: Path, trap: Path) -> None:
    repository = _copy(secret, trap)
    for name in ("objects", "refs"):
        shutil.rmtree(repository / name)
    (repository / "commondir").write_text(f"{secret}\n")


def _refs_link(secret: Path, trap: Path) -> None:
    repository = trap / ".git"
    (repository / "refs").mkdir(parents=True)
    (repository / "HEAD").write_text("ref: refs/heads/main\n")
    (repository / "refs" / "heads").symlink_to(secret / "refs" / "heads")
    (repository / "objects").symlink_to(secret / "objects")


def _object_link(secret: Path, trap: Path) -> None:
    for each in (_copy(secret, trap) / "objects").glob("??/*"):
        each.unlink()
        each.symlink_to(secret / "objects" / each.parent.name / each.name)


def _loose_link(secret: Path, trap: Path) -> None:
    for each in (_copy(secret, trap) / "objects").glob("??"):
        shutil.rmtree(each)
        each.symlink_to(secret / "objects" / each.name)


def _packs_link(secret: Path, trap: Path) -> None:
    packs = _copy(secret, trap) / "objects" / "pack"
    shutil.rmtree(packs)
    packs.symlink_to(secret / "objects" / "pack")


def _pipe(name: str) -> Callable[[Path, Path], None]:
    def make(secret: Path, trap: Path) -> None:
        path = _copy(secret, trap) / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return make


def _reftable(secret: Path, trap: Path) -> None:
    with (_copy(secret, trap) / "config").open("a") as config:
        config.write("[extensions]\n\trefStorage = reftable\n")


TRAPS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a gitdir file": (_git_file, "/.git is not a directory"),
    "a linked .git": (_git_link, "/.git is a link"),
    "linked objects": (_objects_link, "/.git/objects is a link"),
    "alternates": (_alternates, "/.git/objects/info/alternates leads to another repository"),
    "a common directory": (_commondir, "/.git/commondir leads to another repository"),
    "linked refs": (_refs_link, "/.git/refs/heads is a link"),
    "a linked object": (_object_link, "is a link"),
    "linked loose objects": (_loose_link, "is a link"),
    "linked packs": (_packs_link, "/.git/objects/pack is a link"),
    "a pipe as HEAD": (_pipe("HEAD"), "/.git/HEAD is not a file"),
    "a pipe as refs": (_pipe("packed-refs"), "/.git/packed-refs is not a file"),
    "a pipe as a ref": (_pipe("refs/heads/x"), "/.git/refs/heads/x is not a file"),
    "refs as tables": (_reftable, "/.git has an extension that is not known here: refstorage"),
}


async def test_nothing_in_a_repository_leads_out_of_it(machine: Machine) -> None:
    outside = Repository.make(machine.directory / "outside")
    outside.commit(secret="secret")
    async with running(machine, source_hosts=()) as (client, _):
        for number, (name, (lay, reason)) in enumerate(TRAPS.items()):
            trap = machine.root / f"trap{number}"
            trap.mkdir()
            lay(outside.path / ".git", trap)
            told = await refused(client, f"w{number}", **of_git(f"file://{trap}"))
            assert reason in told, name
            assert "times" not in told, name


async def test_plain_bare_packed_shallow_and_sha256_repositories(machine: Machine) -> None:
    plain = Repository.make(machine.root / "plain%20one")
    commit = plain.commit(read_me="first")
    git(plain.path, "config", "extensions.worktreeConfig", "true")
    git(plain.path, "config", "uploadpack.packObjectsHook", "false")
    git(machine.root, "clone", "--quiet", "--bare", "--no-local", str(plain.path), "bare.git")
    git(machine.root / "bare.git", "gc", "--quiet")
    (machine.root / "bare.git" / "hooks").mkdir(exist_ok=True)
    newer = Repository.make(machine.root / "newer", "--object-format=sha256")
    longer = newer.commit(read_me="first")
    plain.commit(read_me="second")
    last = plain.commit(read_me="third")
    git(machine.root, "clone", "--quiet", "--depth=2", "--no-local", _url(plain.path), "shallow")
    async with running(machine, source_hosts=()) as (client, _):
        for number, (path, expected) in enumerate(
            [
                (plain.path, last),
                (plain.path / ".git", last),
                (machine.root / "bare.git", commit),
                (newer.path, longer),
                (machine.root / "shallow", last),
            ]
        ):
            root = await ready(client, f"w{number}", **of_git(_url(path)))
            assert git(root, "rev-parse", "HEAD") == expected
            assert git(root, "fsck", "--strict") == ""
            assert {each.name for each in root.iterdir()} == {".git", "read.me"}


async def test_what_is_too_large_to_copy(machine: Machine) -> None:
    repository = Repository.make(machine.root / "code")
    (repository.path / "large").write_bytes(os.urandom(300_000))
    repository.commit(more="x")
    async with running(machine, source_hosts=(), source_bytes=200_000) as (client, _):
        assert "larger than 200000 bytes" in await refused(client, **of_git(f"file://{repository.path}"))


async def test_a_complaint_that_cannot_be_stored_as_it_is(machine: Machine) -> None:
    """Git's own words over the wire have a NUL at the end when an object is missing."""
    repository = Repository.make(machine.root / "code")
    repository.commit(read_me="first")
    blob = git(repository.path, "rev-parse", "HEAD:read.me")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    async with running(machine, source_hosts=()) as (client, _):
        reason = await refused(client, **of_git(f"file://{repository.path}"))
    assert "could not be fetched, 4 times: git fetch" in reason
    assert "\0" not in reason


def test_these_traps_work(tmp_path: Path) -> None:
    """Git itself follows what is laid: else their refusal would say nothing."""
    outside = Repository.make(tmp_path / "outside")
    outside.commit(secret="secret")
    for name, (lay, _) in list(TRAPS.items())[:7]:
        trap = tmp_path / name
        trap.mkdir()
        lay(outside.path / ".git", trap)
        shown = subprocess.run(
            ["git", "-c", "safe.directory=*", "show", "HEAD:secret"], cwd=trap, env=GIT, capture_output=True
        )
        assert shown.stdout == b"secret", (name, shown.stderr)


def _url(path: Path) -> str:
    return f"file://{quote(str(path))}"
