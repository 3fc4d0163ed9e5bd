#!/bin/sh
# Builds the image of the services with the engine that `docker` talks to, as IMAGE (moorage:latest).
#   BASE      what it stands on: a Debian with Python 3.11 to 3.14; without it the Dockerfile's
#   PACKAGES  what Debian's archive adds to the base, which needs a network in the build; empty for none
# Wheels are fetched out here, for the Python of the base, and each must have a hash that requirements.lock names;
# pip's settings (a mirror, a folder of wheels) work as usual.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
deploy=$root/deploy
context=$root/build/image
python=$root/.venv/bin/python
image=${IMAGE:-moorage:latest}
pip_wheel=$(echo "$root"/tools/pip-*.whl)
base=${BASE:-$(sed -n 's/^ARG BASE=//p' "$deploy/Dockerfile")}

pip() {
    "$python" "$pip_wheel/pip" "$@"
}

platform() { # the Python and the machine of the base, as pip names them
    docker run --rm --network none --entrypoint python3 "$base" -c \
        'import os, sys; print("%d.%d" % sys.version_info[:2], os.uname().machine)'
}

fetch() { # PYTHON MACHINE
    wanted=$(cat "$deploy/requirements.lock" "$0" | sha256sum | cut -c1-16)-$1-$2
    [ "$(cat "$context/fetched" 2>/dev/null)" = "$wanted" ] && return
    rm -rf "$context"
    mkdir -p "$context/wheels"
    pip download --quiet --no-deps --only-binary :all: --require-hashes --requirement "$deploy/requirements.lock" \
        --implementation cp --python-version "$1" --platform "manylinux_2_28_$2" --platform "manylinux_2_17_$2" \
        --platform "manylinux2014_$2" --dest "$context/wheels"
    echo "$wanted" >"$context/fetched"
}

own() { # our own wheel, from the sources as they are
    rm -f "$context"/wheels/moorage-*.whl
    pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$context/wheels" "$root"
    cp "$pip_wheel" "$context/pip.whl"
    cp "$deploy/requirements.lock" "$context/"
}

version() {
    sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml"
}

fetch $(platform)
own
set -- --build-arg "BASE=$base" --build-arg "VERSION=$(version)"
set -- "$@" --build-arg "REVISION=$(git -C "$root" rev-parse HEAD 2>/dev/null || true)"
[ -z "${PACKAGES+set}" ] || set -- "$@" --build-arg "PACKAGES=$PACKAGES"
stage=$(date +%s)-$$
# Docker's older builder keeps the first stage as an image without a name; only this build's is taken away.
trap 'docker image prune --force --filter "label=io.moorage.stage=$stage" >/dev/null || true' EXIT
set -- "$@" --build-arg "STAGE=$stage"
docker build --quiet --tag "$image" --file "$deploy/Dockerfile" "$@" "$context"
