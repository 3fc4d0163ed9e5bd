#!/bin/sh
# Puts an etcd into build/ci/bin, to compare leases with: Debian's if apt-get knows it, else built with Go.
# Nothing is installed outside of build/. Without either it says so and fails; `make bench` then does without.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
target=$root/build/ci/bin/etcd
version=v3.5.21

if [ -x "$target" ] || command -v etcd >/dev/null 2>&1; then
    exit 0
fi
mkdir -p "$(dirname "$target")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

if command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 &&
    apt-get download etcd-server >/dev/null 2>&1; then
    dpkg-deb -x etcd-server_*.deb unpacked
    mv unpacked/usr/bin/etcd "$target"
elif command -v go >/dev/null 2>&1; then
    # `go install` refuses a module that replaces others.
    go mod init comparison >/dev/null 2>&1
    GOFLAGS=-mod=mod go get "go.etcd.io/etcd/server/v3@$version"
    GOFLAGS=-mod=mod CGO_ENABLED=0 go build -o "$target" go.etcd.io/etcd/server/v3
else
    echo "no etcd here: neither Debian's packages nor Go" >&2
    exit 1
fi
"$target" --version | head -n 1
