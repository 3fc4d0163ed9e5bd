"""Fork server and shims: the processes between an instance and the commands it runs.

Run as a script of its own with the standard library only: `python -I -S shim.py FD`, where FD
is a socket that leads to the instance. The *fork server* forks a *shim* per exec. A shim is the
kernel's reaper of everything below it, also of what left the group and of what cleared its
environment: when it has no child left, every process of its exec is dead. It kills them all
when the command ends, when it is told to, and when the instance is gone (end of file).

A shim talks lines of JSON on its own socket. It reads {"command": [...], "environment": {...},
"terminal": false}, then any number of {"signal": 15}, {"mark": true} and {"reap": true}; end of
file means kill. It writes {"started": pid} or {"failed": "cause"}, {"marked": count} and
{"reaped": count} to what asks for them, and when all are dead
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
CLEAN_LOOKS = 2

# A process's number with its start time: no other process ever has both.
Identity = tuple[int, str]


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


def children(pid: int) -> list[int]:
    """The direct children of a process and its threads, by the kernel's lists; none when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (pathlib would double the start's time)
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def read(path: str) -> str:
    """A file of the kernel; nothing when its process is gone."""
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
        return file.read()
    return ""


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


# What is younger than a mark.


def identity(pid: int) -> Identity | None:
    """Of a living process."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (pid, fields[19]) if fields and fields[0] not in ("Z", "X") else None


def descendants() -> set[Identity]:
    """All living processes below this one.

    Whatever loses its parent during the walk becomes this process's child, and is found in the end.
    """
    seen: set[int] = set()
    while waiting := [pid for pid in children(os.getpid()) if pid not in seen]:
        while waiting:
            seen.add(pid := waiting.pop())
            waiting += [child for child in children(pid) if child not in seen]
    return {known for pid in seen if (known := identity(pid))}


def kill_known(known: Identity) -> None:
    """SIGKILL to this very process: the descriptor pins what has the number before it is compared."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(known[0])
        try:
            if identity(known[0]) == known:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


class Reaping:
    """Kills what is below this process and not in `older`."""

    def __init__(self, older: set[Identity]) -> None:
        """Nothing is killed yet."""
        self.older = older
        self.killed: set[Identity] = set()

    def is_done(self) -> bool:
        """Kill what is found; whether nothing was, twice: the lists have gaps while somebody exits."""
        for _ in range(CLEAN_LOOKS):
            if young := descendants() - self.older:
                for each in young:
                    kill_known(each)
                self.killed |= young
                return False
        return True


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
        self.marked: set[Identity] = set()
        self.reaping: Reaping | None = None

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
            ready = {fd for fd, _ in poll.poll(RETRY_MILLISECONDS if self.reaping else None)}
            told = signal.SIGTERM in wakeups.drain()
            if reap(self.leader)[1]:
                return False
            if told or (self.connection.fileno() in ready and not self.obey()):
                return True
            if self.reaping and self.reaping.is_done():
                self.send({"reaped": len(self.reaping.killed)})
                self.reaping = None

    def obey(self) -> bool:
        """Carry out orders; False at the end of the stream."""
        try:
            data = self.connection.recv(RECEIVE)
        except ConnectionError:
            return False
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            self.carry_out(json.loads(line))
        return bool(data)

    def carry_out(self, order: dict[str, Any]) -> None:
        """Pass a signal on, draw a line, or begin to kill what is younger than the newest one."""
        if "signal" in order:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, order["signal"])
        elif "mark" in order:
            self.marked = descendants() | descendants()
            self.send({"marked": len(self.marked)})
        else:
            self.reaping = Reaping(self.marked)

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
                for pid in children(os.getpid()):
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
        for orphan in set(children(os.getpid())) - shims:
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
