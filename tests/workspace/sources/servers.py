"""Servers of sources on loopback, and repositories to serve."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "t@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    **{f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
}


def git(directory: Path, *arguments: str) -> str:
    """What git says there."""
    return subprocess.run(
        ["git", *arguments], cwd=directory, env=GIT, check=True, capture_output=True, text=True
    ).stdout.strip()


@dataclass(frozen=True)
class Repository:
    """A repository with a work tree."""

    path: Path

    @classmethod
    def make(cls, path: Path, *arguments: str) -> Repository:
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--initial-branch=main", *arguments)
        return cls(path)

    def commit(self, **files: str) -> str:
        """The id of a commit with these files, `_` in names for dots."""
        for name, content in files.items():
            (self.path / name.replace("_", ".")).write_text(content)
        git(self.path, "add", "--all")
        git(self.path, "commit", "--quiet", "--message", "one")
        return git(self.path, "rev-parse", "HEAD")


@dataclass
class Site:
    """What a server has: files and redirects by path, and repositories below /git/."""

    directory: Path
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hung: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    failures: int = 0
    port: int = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def redirect(self, asked: str) -> str:
        """Where this path, or one above it, is redirected to."""
        for start, where in self.redirects.items():
            if asked == start or asked.startswith(f"{start}/"):
                return where + asked.removeprefix(start)
        return ""

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    site: Site


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.server.site
        path = self.path.partition("?")[0]
        site.asked.append(self.path)
        if site.failures:
            site.failures -= 1
            self.send_error(503)
        elif where := site.redirect(self.path):
            self.send_response(302)
            self.send_header("Location", where)
            self.end_headers()
        elif path in site.files:
            self._give(site.files[path])
        elif path == "/hang":
            self._hang()
        elif path.startswith("/git/"):
            self._git(b"")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self._git(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _hang(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x")
        self.server.site.hung.set()
        self.server.site.release.wait()

    def _give(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content)

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **GIT,
            "GIT_PROJECT_ROOT": str(self.server.site.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        answer = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, check=True, capture_output=True
        ).stdout
        headers, _, content = answer.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in headers.decode().splitlines())
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content)


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Site]:
    """A site, served within the block."""
    site = Site(directory)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.site = site
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        site.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
