#!/bin/sh
# A Docker engine for the tests and for deploy/: the one that runs here, else one of our own below build/engine.
#   engine.sh start   prints the address, for DOCKER_HOST, on standard output
#   engine.sh stop    ends an engine of our own and removes all it had; leaves any other alone
# One of our own needs root and dockerd. It shares only the bridge docker0 and its packet filter with the machine,
# which one engine at a time can have: so none is started beside another.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
directory=$root/build/engine
own=unix://$directory/docker.sock
system=unix:///var/run/docker.sock

answers() { # ADDRESS
    DOCKER_HOST=$1 timeout 20 docker version >/dev/null 2>&1
}

is_ours() { # PID: not a stranger that has the number of a process that died
    [ -n "$1" ] && tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | grep -qF "$directory"
}

pid_in() { # FILE
    cat "$1" 2>/dev/null || true
}

refuse() {
    echo "engine: $*" >&2
    exit 1
}

launch() {
    [ "$(id -u)" = 0 ] || refuse "none runs here; starting one needs root (set DOCKER_HOST if there is one elsewhere)"
    command -v dockerd >/dev/null || refuse "none runs here, and there is no dockerd (Debian: docker.io)"
    [ ${#directory} -le 60 ] || refuse "$directory is too long for the path of a socket"
    mkdir -p "$directory"
    rm -f "$directory/pid"
    # dockerd takes overlay2 where the file system can, else vfs, which copies.
    setsid dockerd --data-root "$directory/data" --exec-root "$directory/exec" --pidfile "$directory/pid" \
        --host "$own" --shutdown-timeout 5 >"$directory/log" 2>&1 </dev/null &
    started=$!
    for _ in $(seq 120); do
        answers "$own" && return
        kill -0 $started 2>/dev/null || break
        sleep 0.5
    done
    tail -n 20 "$directory/log" >&2
    refuse "dockerd does not come up; its log is above"
}

start() {
    if answers "$own"; then
        address=$own
    elif [ -n "${DOCKER_HOST:-}" ]; then
        address=$DOCKER_HOST
        answers "$address" || refuse "nothing answers at DOCKER_HOST, $address"
    elif answers "$system"; then
        address=$system
    else
        launch
        address=$own
    fi
    driver=$(DOCKER_HOST=$address docker info --format '{{.ServerVersion}}, {{.Driver}}')
    echo "engine: $driver, at $address" >&2
    echo "$address"
}

finish() { # PID: TERM, after 30 s KILL
    is_ours "$1" || return 0
    kill "$1"
    for _ in $(seq 60); do
        is_ours "$1" || return 0
        sleep 0.5
    done
    kill -9 "$1"
}

stop() {
    [ -d "$directory" ] || return 0
    if answers "$own"; then
        DOCKER_HOST=$own docker ps -aq | DOCKER_HOST=$own xargs -r docker rm -f >/dev/null || true
    fi
    finish "$(pid_in "$directory/pid")"
    # What a killed dockerd leaves.
    finish "$(pid_in "$directory/exec/containerd/containerd.pid")"
    awk -v below="$directory/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
    rm -rf "$directory"
}

case ${1:-} in
start) start ;;
stop) stop ;;
*) refuse "start or stop?" ;;
esac
