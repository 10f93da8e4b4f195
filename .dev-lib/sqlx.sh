# shellcheck shell=bash
# shared/store/.sqlx: what PostgreSQL says about each query, so that everybody else builds without one. Made by the
# query macros themselves: with a database and SQLX_OFFLINE_DIR they leave one file a query there.

SQLX_DIR=shared/store/.sqlx

# In: running servers, .dev/env loaded. $1: --check compares only.
sqlx_prepare() {
    local url=${ARKIV_OWNER_DATABASE_URL%/*}/arkiv_sqlx made status=0 file
    need_cargo
    sqlx_database
    made=$(mktemp -d "$DEV/sqlx.XXXXXX")
    # cargo does not know that the database is an input: a fresh date makes it look again
    touch shared/store/src/lib.rs
    SQLX_OFFLINE=false DATABASE_URL=$url SQLX_OFFLINE_DIR=$made cargo check -p store --all-targets --locked >&2 9>&- || {
        rm -rf "$made"
        die "the queries of shared/store do not fit the schema in migrations/; see above"
    }
    if [[ ${1:-} == --check ]]; then
        for file in $(find "$made" "$SQLX_DIR" -name '*.json' -printf '%f\n' 2>/dev/null | sort -u); do
            cmp -s "$made/$file" "$SQLX_DIR/$file" && continue
            ((status)) || say "$SQLX_DIR is not what the queries and migrations/ say:"
            status=1
            if [[ ! -e $SQLX_DIR/$file ]]; then
                say "  missing: $file ($(sqlx_query "$made/$file"))"
            elif [[ ! -e $made/$file ]]; then
                say "  no query any more: $file ($(sqlx_query "$SQLX_DIR/$file"))"
            else
                say "  differs: $file ($(sqlx_query "$made/$file"))"
            fi
        done
        rm -rf "$made"
        ((status == 0)) || { say "run: ./dev sqlx   and commit $SQLX_DIR"; return 1; }
        say "$SQLX_DIR is fresh"
    else
        chmod 755 "$made" && chmod 644 "$made"/*
        rm -rf "$SQLX_DIR"
        mv "$made" "$SQLX_DIR"
        say "$SQLX_DIR: $(find "$SQLX_DIR" -name '*.json' | wc -l) queries"
    fi
}

sqlx_query() { sed -n 's/^ *"query": "\(.*\)",$/\1/p' "$1" | sed 's/\\n/ /g; s/\\"/"/g; s/  */ /g' | cut -c 1-70; }

sqlx_database() {
    local file
    pg_owner -d postgres -c 'drop database if exists arkiv_sqlx with (force)' -c 'create database arkiv_sqlx' 2>/dev/null
    for file in migrations/*.sql; do
        pg_owner -d arkiv_sqlx -1 -f "$file" >/dev/null || die "$file does not apply; see above"
    done
}

# psql as the schema's owner; no password on a command line.
pg_owner() {
    PGPASSWORD=$PG_OWNER_PASSWORD "$PG_BIN/psql" -X -q -h 127.0.0.1 -p "$PORT_POSTGRES" -U arkiv_owner -v ON_ERROR_STOP=1 "$@"
}
