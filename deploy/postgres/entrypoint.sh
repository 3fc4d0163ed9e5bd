#!/bin/sh
# Makes the cluster where there is none, with the role and the database that POSTGRES_USER, POSTGRES_DB and
# POSTGRES_PASSWORD_FILE name, then becomes the server.
set -eu
user=${POSTGRES_USER:-postgres}
case ${1:-} in -*) set -- postgres "$@" ;; esac
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$user" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl start --wait --silent --options="-c listen_addresses= -k /tmp" >/dev/null
    [ "${POSTGRES_DB:-$user}" = postgres ] || createdb --host=/tmp --username="$user" "${POSTGRES_DB:-$user}"
    pg_ctl stop --wait --silent --mode=fast >/dev/null
fi
if [ "$1" = postgres ]; then
    shift
    set -- postgres -c "listen_addresses=*" -k /run/postgresql "$@"
fi
exec "$@"
