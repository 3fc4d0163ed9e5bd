"""A commit of a git repository, checked out with the history of its ref."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from services.workspace.sources.fetch.bounds import Bounds, Rejected, Tally
from services.workspace.sources.fetch.copying import copy
from services.workspace.sources.fetch.local import Inside
from services.workspace.sources.fetch.repository import Git
from services.workspace.sources.fetch.web import NotNow, opened
from services.workspace.sources.urls import Hosts, Url, parse

_SERVICE: Final = "/info/refs?service=git-upload-pack"
_ADVERTISEMENT: Final = "application/x-git-upload-pack-advertisement"
_BRANCH, _TAG = "refs/heads/", "refs/tags/"
_USUAL: Final = ("refs/heads/main", "refs/heads/master")
_SHA256_LENGTH: Final = 64
# Pins to addresses came with this one.
_OLDEST: Final = (2, 37)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to check out of `url`, both as the caller wrote them; `commit` and `ref` may be empty."""

    url: Url
    ref: str
    commit: str


@dataclass(frozen=True, slots=True)
class Means:
    """Where to fetch from, where to fill, and how much."""

    hosts: Hosts
    inside: Inside
    bounds: Bounds
    home: str
    path: str


def check_out(wanted: Wanted, means: Means, root: str) -> None:
    """Fill the empty directory `root`; Rejected, NotNow."""
    git = Git(root, means.home, means.path, wanted.url.scheme)
    address = _prepare(git, wanted.url, means)
    ref, found = _ref_of(git, address, wanted.ref)
    branch = ref.removeprefix(_BRANCH) if ref.startswith(_BRANCH) else ""
    _make(git, wanted.url, branch, found)
    kept = f"refs/remotes/origin/{branch}" if branch else ref if ref.startswith(_TAG) else "FETCH_HEAD"
    refspec = ref if kept == "FETCH_HEAD" else f"+{ref}:{kept}"
    _fetch(git, address, refspec, means.bounds)
    commit = _judge(git, git.run("rev-parse", "--verify", f"{kept}^{{commit}}").strip(), wanted)
    _measure(git, commit, means.bounds)
    where = ("-B", branch) if branch else ("--detach",)
    git.run("checkout", "--quiet", *where, commit, "--")
    Path(root, ".git", "FETCH_HEAD").unlink(missing_ok=True)


def _fetch(git: Git, address: str, refspec: str, bounds: Bounds) -> None:
    try:
        # From a repository that is shallow itself there is no more to be had.
        how = ("--quiet", "--no-tags", "--no-recurse-submodules", "--update-shallow")
        git.run("fetch", *how, "--", address, refspec)
    except NotNow:
        # Git does not tell that the kernel ended what wrote the pack.
        packs = Path(git.directory, ".git", "objects", "pack").glob("tmp_pack_*")
        if any(pack.stat().st_size >= bounds.size for pack in packs):
            raise Rejected(f"it is larger than {bounds.size} bytes") from None
        raise


def _prepare(git: Git, url: Url, means: Means) -> str:
    """Write down git's rules; the address that it can fetch from."""
    if url.is_local:
        git.prepare(())
        return _copy(git, url, means)
    found = _discover(url, means.hosts)
    git.prepare(_pins(found, means.hosts.addresses(found)))
    _check_version(git)
    return found.text


def _copy(git: Git, url: Url, means: Means) -> str:
    target = Path(means.home, "copy.git")
    with means.inside.directory(url.path) as directory:
        copy(git, directory, url.path, target, means.bounds)
    return f"file://{quote(str(target))}"


def _pins(url: Url, addresses: Sequence[str]) -> tuple[str, ...]:
    """That a name leads to the addresses that were judged; an address leads where it says."""
    if url.host in addresses:
        return ()
    listed = ",".join(f"[{each}]" if ":" in each else each for each in addresses)
    return (f"{url.host}:{url.port}:{listed}",)


def _discover(url: Url, hosts: Hosts) -> Url:
    """Where the repository is after redirects, each of which is judged: git itself follows none."""
    asked = parse(url.text.rstrip("/") + _SERVICE)
    with opened(asked, hosts) as (answered, response):
        if response.headers.get_content_type() != _ADVERTISEMENT:
            raise Rejected(f"{answered.host} has no repository there that git's smart protocol serves")
        if not answered.text.endswith(_SERVICE):
            raise Rejected(f"{answered.host} redirects to what is no repository")
        return parse(answered.text.removesuffix(_SERVICE))


def _check_version(git: Git) -> None:
    found = re.search(r"(\d+)\.(\d+)", git.run("version"))
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise Rejected("the git of this instance is older than 2.37")


def _ref_of(git: Git, address: str, wanted: str) -> tuple[str, str]:
    """The full name of the ref, and what it is in the repository now."""
    names = (wanted,) if wanted.startswith("refs/") else (_BRANCH + wanted, _TAG + wanted)
    asked = names if wanted else ("HEAD", *_USUAL)
    listed = git.run("ls-remote", "--symref", "--", address, *asked)
    refs: dict[str, str] = {}
    head = ""
    for line in listed.splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: ") and name == "HEAD":
            head = value.removeprefix("ref: ")
        else:
            refs[name] = value
    if not wanted:
        return _head_of(refs, head)
    for name in names:
        if name in refs:
            return name, refs[name]
    raise Rejected(f"it has no branch or tag {wanted!r}")


def _head_of(refs: dict[str, str], head: str) -> tuple[str, str]:
    if "HEAD" not in refs:
        raise Rejected("it has no HEAD: it is empty, or a ref must be named")
    same = (name for name in _USUAL if refs.get(name) == refs["HEAD"])
    return (head if head.startswith(_BRANCH) else next(same, "HEAD")), refs["HEAD"]


def _make(git: Git, url: Url, branch: str, example: str) -> None:
    form = "sha256" if len(example) == _SHA256_LENGTH else "sha1"
    first = branch or "main"
    git.run("init", "--quiet", "--template=", f"--object-format={form}", f"--initial-branch={first}")
    git.run("config", "remote.origin.url", url.text)
    git.run("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    if branch:
        git.run("config", f"branch.{branch}.remote", "origin")
        git.run("config", f"branch.{branch}.merge", _BRANCH + branch)


def _judge(git: Git, tip: str, wanted: Wanted) -> str:
    if wanted.commit in {"", tip}:
        return tip
    if not git.succeeds("merge-base", "--is-ancestor", wanted.commit, tip):
        raise Rejected(f"commit {wanted.commit} is not in the history of {wanted.ref or 'its HEAD'}")
    return wanted.commit


def _measure(git: Git, commit: str, bounds: Bounds) -> None:
    """Rejected when what would be checked out is too much; asked for before it is."""
    tally = Tally(bounds)
    for line in git.lines("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit):
        size = line.partition(b"\t")[0].split()[-1]
        tally.entry()
        tally.grow(int(size) if size.isdigit() else 0)
