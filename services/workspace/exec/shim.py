"""Fork server and shims: the processes between an instance and the commands it runs.

Run as a script of its own with the standard library only: `python -I -S shim.py FD`, where FD
is a socket that leads to the instance. The *fork server* forks a *shim* per exec. A shim is the
kernel's reaper of everything below it, also of what left the group and of what cleared its
environment: when it has no child left, every process of its exec is dead. It kills them all
when the command ends, when it is told to, and when the instance is gone (end of file).

A shim talks lines of JSON on its own socket. It reads {"command": [...], "environment": {...},
"terminal": false}, then any number of {"signal": 15}; end of file means kill. It writes
{"started": pid} or {"failed": "cause"}, and when all are dead
{"status": wait status, "killed": whether the command still ran when the kill came}.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import termios
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RECEIVE = 65536
EXEC_DESCRIPTORS = 5
RETRY_MILLISECONDS = 20
EXEC_FAILED = 127


def prctl(option: int, value: int) -> None:
    """prctl(2); OSError when the kernel refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


class Wakeups:
    """A descriptor that becomes readable with each SIGCHLD and SIGTERM of this process."""

    def __init__(self) -> None:
        """Install the handlers; what an earlier process of this program had is closed."""
        self.reader, self.writer = os.pipe()
        for fd in (self.reader, self.writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def drain(self) -> bytes:
        """The numbers of the signals that came."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.reader, RECEIVE)
        return b""

    def close(self) -> None:
        """Forget them, in a child that installs its own or executes a program."""
        signal.set_wakeup_fd(-1)
        os.close(self.reader)
        os.close(self.writer)


def children() -> list[int]:
    """The direct children of this process, by the kernel's list."""
    path = f"/proc/self/task/{os.getpid()}/children"
    with open(path, encoding="ascii") as listing:  # noqa: PTH123 (pathlib would double the start's time)
        return [int(pid) for pid in listing.read().split()]


def reap(spare: int = 0) -> tuple[set[int], bool]:
    """Collect dead children but `spare`: which, and whether that one is dead.

    ChildProcessError: no child is left.
    """
    collected: set[int] = set()
    while (info := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if info.si_pid == spare:
            return collected, True
        os.waitpid(info.si_pid, 0)
        collected.add(info.si_pid)
    return collected, False


def kill(pid: int) -> None:
    """SIGKILL to a child, which keeps its number until this process reaps it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


# The command.


def become_command(request: dict[str, Any], streams: list[int], directory: int, failure: int) -> NoReturn:
    """In the forked child: turn into the command, or say why not through `failure`."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for target, source in enumerate(streams):
            os.dup2(source, target)
        if request["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.fchdir(directory)
        restore_signals()
        os.execvpe(  # noqa: S606 (a command is what is wanted)
            request["command"][0], request["command"], request["environment"]
        )
    except OSError as error:
        os.write(failure, (error.strerror or str(error)).encode())
    except BaseException as error:  # noqa: BLE001 (nothing may run on in a forked copy)
        os.write(failure, str(error).encode())
    os._exit(EXEC_FAILED)


def restore_signals() -> None:
    """What an executed program expects: nothing ignored, nothing blocked."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# The shim.


class Shim:
    """Watches one command from its start until nothing of it is left."""

    def __init__(self, connection: socket.socket, streams: list[int], directory: int) -> None:
        """Own the descriptors until the command has them."""
        self.connection = connection
        self.streams = streams
        self.directory = directory
        self.received = b""
        self.leader = 0

    def run(self) -> None:
        """Start, watch, kill, report."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wakeups = Wakeups()
        request = self.read_request()
        if request is None:
            self.send({"failed": "given up before it was started"})
        if request is None or not self.start(request):
            return
        killed = self.watch(wakeups)
        self.send({"status": self.bury(wakeups), "killed": killed})

    def read_request(self) -> dict[str, Any] | None:
        """None when the instance gave up before it had said what to run."""
        while b"\n" not in self.received:
            if not (data := self.connection.recv(RECEIVE)):
                return None
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request

    def start(self, request: dict[str, Any]) -> bool:
        """Fork the command; whether it runs."""
        reader, writer = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            become_command(request, self.streams, self.directory, writer)
        for fd in (*self.streams, self.directory, writer):
            os.close(fd)
        with os.fdopen(reader, "rb") as failure:
            cause = failure.read()
        if cause:
            os.waitpid(self.leader, 0)
            self.send({"failed": cause.decode(errors="replace")})
            return False
        self.send({"started": self.leader})
        return True

    def watch(self, wakeups: Wakeups) -> bool:
        """Until the command has ended (False) or is to be killed (True)."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        poll.register(wakeups.reader, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            told = signal.SIGTERM in wakeups.drain()
            if reap(self.leader)[1]:
                return False
            if told or (self.connection.fileno() in ready and not self.obey()):
                return True

    def obey(self) -> bool:
        """Pass signals on; False at the end of the stream."""
        try:
            data = self.connection.recv(RECEIVE)
        except ConnectionError:
            return False
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, json.loads(line)["signal"])
        return bool(data)

    def bury(self, wakeups: Wakeups) -> int:
        """Kill until the kernel says that no child is left; the command's wait status."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, signal.SIGKILL)
        _, status = os.waitpid(self.leader, 0)
        poll = select.poll()
        poll.register(wakeups.reader, select.POLLIN)
        with contextlib.suppress(ChildProcessError):
            while True:
                # Only direct children are signalled: their numbers cannot be anybody else's before they
                # are reaped. The children of a killed one become direct children in their turn.
                for pid in children():
                    kill(pid)
                reap()
                poll.poll(RETRY_MILLISECONDS)
                wakeups.drain()
        return status

    def send(self, message: dict[str, Any]) -> None:
        """Tell the instance; it may be gone."""
        with contextlib.suppress(ConnectionError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")


# The fork server.


def receive(control: socket.socket) -> list[int] | None:
    """Connection, directory and three streams of an exec; None when the instance is gone."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, EXEC_DESCRIPTORS)
    for fd in descriptors:
        os.set_inheritable(fd, False)
    return descriptors if data else None


def accept(control: socket.socket, wakeups: Wakeups, descriptors: list[int]) -> set[int]:
    """The shim's process id, if a shim could be made; else the instance sees its socket close."""
    try:
        if len(descriptors) == EXEC_DESCRIPTORS:
            return {fork_shim(control, wakeups, descriptors)}
    except OSError:
        sys.excepthook(*sys.exc_info())
    finally:
        for fd in descriptors:
            os.close(fd)
    return set()


def fork_shim(control: socket.socket, wakeups: Wakeups, descriptors: list[int]) -> int:
    """A new shim's process id. Never returns in the shim."""
    if pid := os.fork():
        return pid
    try:
        control.close()
        wakeups.close()
        connection, directory, *streams = descriptors
        Shim(socket.socket(fileno=connection), streams, directory).run()
    except BaseException:  # noqa: BLE001 (a fork must not go on as the fork server)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def serve(control: socket.socket) -> None:
    """Fork shims until the instance is gone. Children that a killed shim left behind are killed."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeups = Wakeups()
    shims: set[int] = set()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wakeups.reader, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if signal.SIGTERM in wakeups.drain():
            return
        with contextlib.suppress(ChildProcessError):
            shims -= reap()[0]
        for orphan in set(children()) - shims:
            kill(orphan)
        if control.fileno() in ready:
            if (descriptors := receive(control)) is None:
                return
            shims |= accept(control, wakeups, descriptors)


def main() -> None:
    """Serve the socket named on the command line."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # Nobody's directory is kept from being unmounted or removed.
    os.chdir("/")
    gc.disable()
    gc.freeze()
    serve(control)


if __name__ == "__main__":
    main()
