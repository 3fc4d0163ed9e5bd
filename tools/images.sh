#!/bin/sh
# Makes the images that tests and examples use, from Debian's packages and what is already here: no registry is asked.
#   tools/images.sh [busybox] [base] [demo] [opencode]      without names: all
# Talks to the engine that the docker command talks to (DOCKER_HOST). An image that is there and was made by the
# same recipe is kept; FRESH=1 makes it anew.
#   busybox   moorage-test:busybox           a shell and its tools in one static program: Debian's busybox-static
#   base      moorage-base:CODENAME, :latest a small Debian with Python and git, by debootstrap: needs root
#   demo      moorage-test:demo              base (or BASE=…) with the built-in demo agent
#   opencode  moorage-example-opencode       base (or BASE=…) with the coding agent that `make agents` installs
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
packages=python3,ca-certificates,git,ripgrep
label=io.moorage.recipe
# The classic builder is in every engine; nothing of ours needs the other one.
export DOCKER_BUILDKIT=0

fail() {
    echo "images: $*" >&2
    exit 1
}

needs() { # PROGRAM WHERE
    command -v "$1" >/dev/null || fail "no $1 here: it is in Debian's package $2"
}

recipe() { # WORD...: names how an image is made
    printf '%s\n' "$@" | sha256sum | cut -c1-16
}

is_there() { # IMAGE RECIPE
    [ -z "${FRESH:-}" ] || return 1
    [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$1" 2>/dev/null)" = "$2" ] || return 1
    echo "images: $1 is there"
}

make_busybox() {
    program=$(command -v busybox) || fail "no busybox here: it is in Debian's package busybox-static"
    recipe=$(recipe busybox 1 "$(sha256sum <"$program")")
    is_there moorage-test:busybox "$recipe" && return
    tree=$work/busybox
    mkdir -p "$tree/bin" "$tree/etc" "$tree/home"
    mkdir -p -m 1777 "$tree/tmp"
    cp -L "$program" "$tree/bin/busybox"
    for applet in $("$program" --list); do
        [ "$applet" = busybox ] || ln -sf busybox "$tree/bin/$applet"
    done
    "$tree/bin/sh" -c : || fail "$program is not static: install Debian's package busybox-static"
    echo 'root:x:0:0:root:/:/bin/sh' >"$tree/etc/passwd"
    echo 'root:x:0:' >"$tree/etc/group"
    import moorage-test:busybox "$tree" "$recipe"
}

make_base() {
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || fail "this is no Debian, so it cannot make the base from its own packages"
    recipe=$(recipe base 1 "$codename" "$packages")
    is_there "moorage-base:$codename" "$recipe" && return
    needs debootstrap debootstrap
    [ "$(id -u)" = 0 ] || fail "debootstrap needs root"
    tree=$work/base
    # The archive that apt uses, and its signature is checked.
    if ! debootstrap --variant=minbase --include=$packages "$codename" "$tree" "$(mirror)" >"$work/log" 2>&1; then
        tail -n 20 "$work/log" >&2
        fail "debootstrap failed"
    fi
    rm -rf "$tree/var/cache/apt" "$tree/var/lib/apt/lists" "$tree/var/log" "$tree/dev" "$tree/proc" "$tree/sys"
    mkdir -p "$tree/var/cache/apt/archives/partial" "$tree/var/lib/apt/lists/partial" "$tree/var/log"
    mkdir -p "$tree/dev" "$tree/proc" "$tree/sys"
    rm -f "$tree/etc/hostname" "$tree/etc/resolv.conf"
    import "moorage-base:$codename" "$tree" "$recipe"
    docker tag "moorage-base:$codename" moorage-base:latest
}

mirror() {
    needs apt-get apt
    found=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$codename" '$2 == suite && $3 == "main" { print $1; exit }')
    [ -n "$found" ] || fail "apt has no source of $codename main"
    echo "$found"
}

make_demo() {
    from_base
    sources=$root/services/runner/agents
    build moorage-test:demo "$root/images/demo" -C "$root/images/demo" moorage-demo-agent \
        --exclude=__pycache__ -C "$sources" demo
}

make_opencode() {
    program=$root/build/ci/agents/node_modules/opencode-linux-x64/bin
    [ -x "$program/opencode" ] || fail "no opencode here: make agents"
    from_base
    build moorage-example-opencode:latest "$root/images/opencode" -C "$program" opencode
}

from_base() {
    [ -n "${BASE:-}${codename:-}" ] || make_base
    from=${BASE:-moorage-base:$codename}
}

build() { # IMAGE DIRECTORY TAR-ARGUMENT...: of the directory's Dockerfile and what tar is told
    image=$1
    directory=$2
    shift 2
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c -f "$work/context" -C "$directory" Dockerfile "$@"
    recipe=$(recipe "$(docker image inspect --format '{{.Id}}' "$from")" "$(sha256sum <"$work/context")")
    is_there "$image" "$recipe" && return
    if ! docker build --network none --label "$label=$recipe" --build-arg "BASE=$from" --tag "$image" - \
        <"$work/context" >"$work/log" 2>&1; then
        tail -n 20 "$work/log" >&2
        fail "docker build failed"
    fi
    echo "images: made $image"
}

import() { # IMAGE TREE RECIPE
    tar -C "$2" --numeric-owner -c . |
        docker import --change "LABEL $label=$3" --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
            - "$1" >/dev/null
    echo "images: made $1"
}

needs docker docker.io
docker version >/dev/null 2>&1 || fail "no engine answers at ${DOCKER_HOST:-the usual place}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in ${*:-busybox base demo opencode}; do
    case $name in
    busybox | base | demo | opencode) "make_$name" ;;
    *) fail "no image is called $name" ;;
    esac
done
