#!/bin/sh
# Installs the coding agents that tests talk to, as tools/agents/package-lock.json names them, into build/ci/agents.
# Needs Node and npm, whose own settings are honoured; runs nothing of the packages.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
target=$root/build/ci/agents

if ! command -v npm >/dev/null; then
    echo "no npm here, so the tests with real coding agents cannot run" >&2
    exit 1
fi
if cmp -s "$root/tools/agents/package-lock.json" "$target/installed.json"; then
    echo "the agents are there: $target"
    exit 0
fi
mkdir -p "$target"
rm -f "$target/installed.json"
cp "$root/tools/agents/package.json" "$root/tools/agents/package-lock.json" "$target"
(cd "$target" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)
cp "$target/package-lock.json" "$target/installed.json"
