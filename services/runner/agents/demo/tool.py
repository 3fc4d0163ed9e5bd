"""A shell command in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

OUTPUT_LIMIT = 64 * 1024
# The group is not the agent's, so whoever kills the agent does not kill it: a companion in the
# group waits for the end of a pipe that only the agent holds open, and kills the group then.
GUARDED_SHELL = (
    'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&- /bin/sh -c "$1"'
)


class Tool:
    """Started at once; `kill` may come from any thread, `wait` is called once."""

    def __init__(self, command: str, directory: str) -> None:
        self._output = bytearray()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", GUARDED_SHELL, "sh", command],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def wait(self) -> tuple[int, str]:
        """Exit code (negative: signal) and output, once nothing of the group is left."""
        code = self._process.wait()
        self.kill()
        # Who left the group may hold the pipe for ever.
        self._reader.join(1.0)
        if self._process.stdin:
            self._process.stdin.close()
        return code, self._output.decode(errors="replace")

    def _collect(self) -> None:
        stdout = self._process.stdout
        while stdout and (data := os.read(stdout.fileno(), 65536)):
            self._output += data[: OUTPUT_LIMIT - len(self._output)]
