"""Workspaces with a commit of a git repository, over HTTP and from a directory (W10)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from moorage.common.v1 import provision_pb2

from services.common.errors import InvalidArgument
from tests.workspace.instances import Client, Machine, running
from tests.workspace.sources.servers import Repository, Site, git
from tests.workspace.sources.wishes import of_git, ready, refused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")

CODE = "/git/code/.git"


async def test_head_over_http(fetching: Client, site: Site, repository: Repository) -> None:
    commit = git(repository.path, "rev-parse", "HEAD")
    root = await ready(fetching, **of_git(site.url(CODE)))
    assert (root / "read.me").read_text() == "first"
    assert git(root, "rev-parse", "HEAD") == commit
    assert git(root, "status", "--branch", "--porcelain") == "## main...origin/main"
    assert git(root, "remote", "get-url", "origin") == site.url(CODE)
    assert git(root, "fsck", "--strict") == ""
    assert not (root / ".git" / "hooks").exists()
    assert {each.name for each in root.iterdir()} == {".git", "read.me"}


async def test_branches_tags_and_commits_of_their_history(
    fetching: Client, site: Site, repository: Repository
) -> None:
    first = git(repository.path, "rev-parse", "HEAD")
    git(repository.path, "tag", "--annotate", "--message", "1", "v1")
    git(repository.path, "checkout", "--quiet", "-b", "feature/x")
    second = repository.commit(read_me="second")
    git(repository.path, "checkout", "--quiet", "main")
    for number, (wish, commit, where) in enumerate(
        [
            ({"ref": "feature/x"}, second, "## feature/x...origin/feature/x"),
            ({"ref": "refs/heads/feature/x"}, second, "## feature/x...origin/feature/x"),
            ({"ref": "v1"}, first, "## HEAD (no branch)"),
            ({"ref": "feature/x", "commit": first}, first, "## feature/x...origin/feature/x [behind 1]"),
            ({"commit": first}, first, "## main...origin/main"),
        ]
    ):
        root = await ready(fetching, f"w{number}", **of_git(site.url(CODE), **wish))
        assert git(root, "rev-parse", "HEAD") == commit, wish
        assert git(root, "status", "--branch", "--porcelain") == where
    reason = await refused(fetching, "other", **of_git(site.url(CODE), ref="main", commit=second))
    assert f"commit {second} is not in the history of main" in reason
    assert "no branch or tag 'nope'" in await refused(fetching, "no", **of_git(site.url(CODE), ref="nope"))


async def test_a_head_that_is_no_branch_and_sha256(fetching: Client, site: Site) -> None:
    repository = Repository.make(site.directory / "code", "--object-format=sha256")
    first = repository.commit(read_me="first")
    repository.commit(read_me="second")
    git(repository.path, "checkout", "--quiet", "--detach", first)
    root = await ready(fetching, **of_git(site.url(CODE)))
    assert (len(first), git(root, "rev-parse", "HEAD")) == (64, first)


async def test_from_a_directory_inside_the_root(machine: Machine) -> None:
    repository = Repository.make(machine.root / "code")
    commit = repository.commit(read_me="first")
    outside = Repository.make(machine.directory / "outside")
    outside.commit(read_me="secret")
    (machine.root / "link").symlink_to(outside.path)
    async with running(machine, source_hosts=()) as (client, _):
        root = await ready(client, **of_git(f"file://{repository.path}"))
        assert git(root, "rev-parse", "HEAD") == commit
        for number, path in enumerate([outside.path, machine.root / "link", machine.root / "code" / ".."]):
            reason = await refused(client, f"no{number}", **of_git(f"file://{path}/."))
            assert "does not lie inside" in reason or "repository" in reason
        # What another session works on is not to be had by its path.
        reason = await refused(client, "no", **of_git(f"file://{root}"))
        assert "does not lie inside" in reason


async def test_nothing_of_a_repository_is_run_or_followed(
    fetching: Client, site: Site, repository: Repository, tmp_path: Path
) -> None:
    """Hooks, filters, submodules and links of the repository; configuration of the machine."""
    touched = tmp_path / "touched"
    (repository.path / "escape").symlink_to(tmp_path)
    repository.commit(
        _gitattributes="* filter=evil\n",
        _gitmodules=f'[submodule "s"]\n path = s\n url = file://{repository.path}\n',
        _lfsconfig="[lfs]\n url = http://127.0.0.1:1/\n",
    )
    git(repository.path, "config", "uploadpack.packObjectsHook", f"touch {touched};")
    git(repository.path, "config", "filter.evil.smudge", f"touch {touched}")
    root = await ready(fetching, **of_git(site.url(CODE)))
    assert (root / "escape").is_symlink()
    assert not touched.exists()
    assert not (root / "s").exists()


async def test_redirects_are_followed_where_they_may_lead(
    fetching: Client, site: Site, repository: Repository
) -> None:
    site.redirects["/old"] = site.url(CODE)
    root = await ready(fetching, **of_git(site.url("/old")))
    assert (root / "read.me").read_text() == "first"
    site.redirects["/away"] = f"http://localhost:{site.port}{CODE}"
    assert "localhost is none of the hosts" in await refused(fetching, "a", **of_git(site.url("/away")))
    site.redirects["/down"] = f"file://{repository.path}"
    assert "redirects to what must be file://" in await refused(fetching, "d", **of_git(site.url("/down")))
    site.redirects["/round"] = site.url("/round")
    assert "redirects more than 5 times" in await refused(fetching, "r", **of_git(site.url("/round")))


async def test_names_lead_to_the_address_that_was_judged(
    machine: Machine, site: Site, repository: Repository
) -> None:
    async with running(machine, source_hosts=("localhost",)) as (client, _):
        root = await ready(client, **of_git(f"http://localhost:{site.port}{CODE}"))
    assert (root / "read.me").read_text() == "first"


async def test_hosts_that_were_not_named(machine: Machine, site: Site, repository: Repository) -> None:
    async with running(machine) as (client, _):
        assert "not public" in await refused(client, **of_git(site.url(CODE)))
    assert site.asked == []


async def test_what_is_no_repository(fetching: Client, site: Site) -> None:
    site.files["/page/info/refs"] = b"hello"
    assert "smart protocol" in await refused(fetching, **of_git(site.url("/page")))
    assert "answers 404" in await refused(fetching, "w2", **of_git(site.url("/git/none")))


async def test_a_passing_failure_is_got_over(fetching: Client, site: Site, repository: Repository) -> None:
    site.failures = 2
    root = await ready(fetching, **of_git(site.url(CODE)))
    assert (root / "read.me").read_text() == "first"
    site.failures = 100
    reason = await refused(fetching, "w2", **of_git(site.url(CODE)))
    assert "could not be fetched, 4 times: 127.0.0.1 answers 503" in reason


async def test_too_much(machine: Machine, site: Site, repository: Repository) -> None:
    (repository.path / "large").write_bytes(os.urandom(300_000))
    repository.commit(more="x")
    async with running(machine, source_hosts=(site.host,), source_bytes=200_000) as (client, _):
        assert "larger than 200000 bytes" in await refused(client, **of_git(site.url(CODE)))


async def test_a_tree_that_names_itself_too_often(machine: Machine, site: Site) -> None:
    """A few hundred bytes that would be a billion files: counted before they are made."""
    path = Repository.make(site.directory / "code").path
    blob = _object(path, "hash-object", "-w", "--stdin", text="x")
    tree = _object(path, "mktree", text=f"100644 blob {blob}\tf\n")
    for _ in range(9):
        tree = _object(path, "mktree", text="".join(f"040000 tree {tree}\td{i}\n" for i in range(10)))
    commit = git(path, "commit-tree", tree, "-m", "bomb")
    git(path, "update-ref", "refs/heads/main", commit)
    async with running(machine, source_hosts=(site.host,), source_files=1000) as (client, _):
        assert "more than 1000 files" in await refused(client, **of_git(site.url(CODE)))


@pytest.mark.parametrize(
    "wish",
    [
        {"url": ""},
        {"url": "https://user:secret@example.org/x"},
        {"url": "https://example.org/x?token=secret"},
        {"url": "ssh://example.org/x"},
        {"url": "--upload-pack=x"},
        {"url": "https://example.org/x", "ref": "--upload-pack=x"},
        {"url": "https://example.org/x", "ref": "a..b"},
        {"url": "https://example.org/x", "ref": "a b"},
        {"url": "https://example.org/x", "commit": "abc"},
        {"url": "https://example.org/x", "commit": "-" + "a" * 39},
    ],
)
async def test_what_cannot_be_asked_for(client: Client, wish: dict[str, str]) -> None:
    spec = provision_pb2.ProvisionSpec(
        source=provision_pb2.WorkspaceSource(git=provision_pb2.GitSource(**wish))
    )
    with pytest.raises(InvalidArgument) as refusal:
        await client.provision(provision=spec)
    assert refusal.value.violations[0].field.startswith("provision.source.git.")
    assert "secret" not in str(refusal.value)


def _object(path: Path, *arguments: str, text: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=path, input=text, check=True, capture_output=True, text=True
    ).stdout.strip()
