#!/bin/sh
# Makes .venv hold what requirements.lock names. Needs a Python 3.11 to 3.14 and its standard library, nothing else.
# PYTHON=… chooses the interpreter; pip's own settings (PIP_INDEX_URL, PIP_CERT, PIP_FIND_LINKS, pip.conf …) are honoured.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)

# Prints the interpreter behind a virtual environment or a version manager's shim: .venv itself may be what is in PATH.
probe='
import ctypes, ssl, sys, venv, zlib
if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable))
'

if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3 python3.14 python3.13 python3.12 python3.11
fi
for candidate in "$@"; do
    if python=$("$candidate" -c "$probe" 2>/dev/null); then
        exec "$python" "$root/tools/bootstrap.py"
    fi
done
echo "Moorage needs Python 3.11, 3.12, 3.13 or 3.14 with its standard library; none of these is one: $*" >&2
echo "Install one, or name it: make PYTHON=/path/to/python3 …" >&2
exit 1
