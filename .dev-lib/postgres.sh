# shellcheck shell=bash
# A private PostgreSQL in .dev/postgres/data. Loopback TCP only: a Unix socket's path may hold 107 bytes, a deep
# checkout has more. PostgreSQL refuses to run as root, so root runs it as `postgres`.

PG_DATA=$DEV/postgres/data
PG_BIN=

pg_find() {
    local bin
    for bin in /usr/lib/postgresql/15/bin $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
        [[ -x $bin/initdb && -x $bin/psql ]] && PG_BIN=$bin && return
    done
    return 1
}

# Who runs it: a command prefix. A checkout below a home that only root may enter is reached by one capability, the
# right to pass through directories; it is added only where it is needed.
pg_as() {
    PG_AS=()
    ((EUID == 0)) || return 0
    local who=(setpriv --reuid=postgres --regid=postgres --init-groups) cap
    mkdir -p "$DEV/postgres"
    chown postgres:postgres "$DEV/postgres" && chmod 700 "$DEV/postgres"
    PG_AS=("${who[@]}" --)
    "${PG_AS[@]}" ls "$DEV/postgres" >/dev/null 2>&1 && return
    for cap in dac_read_search dac_override; do
        PG_AS=("${who[@]}" "--inh-caps=+$cap" "--ambient-caps=+$cap" --)
        "${PG_AS[@]}" ls "$DEV/postgres" >/dev/null 2>&1 && return
    done
    die "the user postgres cannot reach $DEV; run: chmod o+x on each folder above it, or move the checkout"
}

# All of its processes, backends left behind by a killed postmaster too: they live in the data directory. Asked for as
# their own user, since root in a container may not look.
pg_pids() {
    local glob
    glob=$(sed 's/[][*?\\]/\\&/g' <<<"$PG_DATA")
    "${PG_AS[@]}" find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$glob" -o -lname "$glob (deleted)" \) 2>/dev/null | cut -d/ -f3 || :
}

pg_postmaster() {
    local pid
    for pid in $(pg_pids); do
        [[ $(tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | sed -n 2,3p) == $'-D\n'"$PG_DATA" ]] && echo "$pid" && return
    done
    return 0
}

pg_sql() { # as the superuser; arguments are psql's
    PGPASSWORD=$PG_ADMIN_PASSWORD PGCONNECT_TIMEOUT=2 "$PG_BIN/psql" -X -q -h 127.0.0.1 -p "$PORT_POSTGRES" -U arkiv_admin -v ON_ERROR_STOP=1 "$@"
}

# t: it answers and our database is there; f: it answers; else what is wrong.
pg_ask() { pg_sql -d postgres -Atc "select exists(select from pg_database where datname = 'arkiv')" 2>&1; }

# With patience: a server that is only busy must not be taken for a broken one. A refused password is final: then
# .dev/secrets is younger than the server.
pg_answers_soon() {
    local end=$((SECONDS + 20)) said
    while said=$(pg_ask) || :; do
        [[ $said == [tf] ]] && return
        [[ $said != *'authentication failed'* && $(pg_postmaster) ]] && ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

pg_start() {
    local t0 changed=''
    t0=$(now_ms)
    pg_as
    if [[ $(pg_pids) && ! -s $PG_DATA/PG_VERSION ]]; then
        # its data was deleted below it
        # shellcheck disable=SC2046
        signal KILL $(pg_pids)
        gone 10 pg_pids || die "PostgreSQL cannot be killed: $(pg_pids | xargs)"
    fi
    pg_create
    pg_configure && changed=1
    if [[ ! $changed && $(pg_postmaster) && $(pg_stamp_of_data) == "$(pg_stamp)" && $(pg_ask) == t ]]; then
        return
    fi
    if [[ $changed ]] || ! pg_answers_soon; then pg_stop; fi
    if [[ ! $(pg_postmaster) ]]; then
        pg_superuser
        spawn postgres "$DEV/log/postgres.log" "${PG_AS[@]}" "$PG_BIN/postgres" -D "$PG_DATA"
    fi
    local end=$((SECONDS + 120)) # crash recovery may take a while
    until "$PG_BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT_POSTGRES"; do
        if ((SECONDS >= end)) || ! kill -0 "${SPAWNED:-$$}" 2>/dev/null; then
            tail -n 20 "$DEV/log/postgres.log" >&2
            die "PostgreSQL did not start (log: .dev/log/postgres.log)"
        fi
        sleep 0.05
    done
    if [[ $(pg_stamp_of_data) != "$(pg_stamp)" || $(pg_ask) != t ]]; then
        ARKIV_OWNER_PASSWORD=$PG_OWNER_PASSWORD ARKIV_API_PASSWORD=$PG_API_PASSWORD ARKIV_WORKER_PASSWORD=$PG_WORKER_PASSWORD \
            pg_sql -d postgres -f "$ROOT/infra/postgres/roles.sql" >&2
        # Only here: tests drop their databases under the noses of the other roles' sessions.
        pg_sql -d postgres -c "grant pg_signal_backend to arkiv_owner" >&2
        pg_stamp >"$PG_DATA/arkiv-roles"
    fi
    [[ $(pg_ask) == t ]] || die "PostgreSQL runs but refuses arkiv_admin (log: .dev/log/postgres.log)"
    say "PostgreSQL is ready ($(seconds_since "$t0"))"
}

# What the roles in the data directory were made from.
pg_stamp() { cat "$DEV/secrets" "$ROOT/infra/postgres/roles.sql" "$ROOT/.dev-lib/postgres.sh" | cksum; }
pg_stamp_of_data() { cat "$PG_DATA/arkiv-roles" 2>/dev/null || :; }

# In a directory beside it, renamed when it is whole: a half-made one is never mistaken for a database.
pg_create() {
    local made
    if [[ -s $PG_DATA/PG_VERSION ]]; then
        made=$(cat "$PG_DATA/PG_VERSION")
        [[ $PG_BIN == */"$made"/* ]] || die ".dev/postgres was made by PostgreSQL $made, here is $PG_BIN; run: ./dev down --wipe"
        return
    fi
    rm -rf "$PG_DATA" "$DEV/postgres/new"
    "${PG_AS[@]}" "$PG_BIN/initdb" -D "$DEV/postgres/new" -U arkiv_admin --encoding=UTF8 --locale=C.UTF-8 \
        --auth=reject >"$DEV/log/initdb.log" 2>&1 ||
        { cat "$DEV/log/initdb.log" >&2; die "initdb failed"; }
    mv "$DEV/postgres/new" "$PG_DATA"
}

# Status 0: a file changed, so a running server must start again.
pg_configure() {
    local changed=1
    put "$PG_DATA/postgresql.conf" 644 <<END && changed=0
# Written by ./dev at each start.
listen_addresses = '127.0.0.1'
port = $PORT_POSTGRES
unix_socket_directories = ''
max_connections = 300
shared_buffers = 128MB
password_encryption = scram-sha-256
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d '
END
    put "$PG_DATA/pg_hba.conf" 644 <<END && changed=0
host all all 127.0.0.1/32 scram-sha-256
END
    return $changed
}

# The superuser's password is in no file of the data directory that we could read; when .dev/secrets is new it is set
# with the server off, where no password is asked for.
pg_superuser() {
    rm -f "$PG_DATA/postmaster.pid" # nobody of ours runs: whatever pid stands there is a stranger's by now
    [[ $(pg_stamp_of_data) == "$(pg_stamp)" ]] && return
    "${PG_AS[@]}" "$PG_BIN/postgres" --single -D "$PG_DATA" postgres \
        <<<"alter role arkiv_admin password '$PG_ADMIN_PASSWORD'" >>"$DEV/log/postgres.log" 2>&1 ||
        { tail -n 20 "$DEV/log/postgres.log" >&2; die "PostgreSQL's data cannot be opened; to begin anew: ./dev down --wipe"; }
}

pg_stop() {
    [[ $PG_BIN ]] || pg_find || return 0
    pg_as
    [[ $(pg_pids) ]] || return 0
    # shellcheck disable=SC2046
    signal INT $(pg_postmaster)
    gone 20 pg_pids && return
    # shellcheck disable=SC2046
    signal KILL $(pg_pids)
    gone 10 pg_pids || die "PostgreSQL cannot be killed: $(pg_pids | xargs)"
}
