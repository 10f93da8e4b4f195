# shellcheck shell=bash
# What every part of ./dev uses: messages, the lock, finding our own processes, ports, secrets.
# In: ROOT (the checkout, a real path) and DEV ($ROOT/.dev).

say() { printf 'dev: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s' "${t%???}"; }
seconds_since() { local d=$(($(now_ms) - $1)); printf '%d.%d s' $((d / 1000)) $((d % 1000 / 100)); }

# --- the lock: one ./dev at a time works on a checkout ---------------------------------------------------------------

# The file is checked again after the wait: `down --wipe` may have removed the one we waited for.
lock() {
    local waited=
    while :; do
        make_dev
        exec 9>>"$DEV/lock"
        if ! flock -n 9; then
            [[ $waited ]] || say "waiting for another ./dev in this checkout"
            waited=1
            flock 9
        fi
        [[ $DEV/lock -ef /proc/self/fd/9 ]] && return
        exec 9>&-
    done
}

unlock() { exec 9>&-; }

make_dev() {
    mkdir -p "$DEV/log" && chmod 755 "$DEV"
}

# --- processes -------------------------------------------------------------------------------------------------------
# Every daemon carries ARKIV_DEV_SERVER=<checkout>:<name> in its environment. That is how it is found and told from
# others': no pid file can go stale, none can name a stranger, and it works after `rm -rf .dev` too.

unset ARKIV_DEV_SERVER

LOG_BYTES_MAX=$((64 << 20)) # a longer log is moved aside when its server starts

# spawn NAME LOG COMMAND...: in a session of its own, with none of our open files (the lock, a caller's pipes).
spawn() {
    local name=$1 log=$2
    shift 2
    [[ $(stat -c %s "$log" 2>/dev/null || echo 0) -lt $LOG_BYTES_MAX ]] || mv -f "$log" "$log.1"
    (
        exec </dev/null >>"$log" 2>&1
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            ((fd > 2)) && eval "exec $fd>&-"
        done
        ARKIV_DEV_SERVER="$ROOT:$name" exec setsid "$@"
    ) &
    SPAWNED=$!
    disown
}

# pids NAME...: our processes of these names.
pids() {
    local name
    for name; do
        grep -lzxF -- "ARKIV_DEV_SERVER=$ROOT:$name" /proc/[0-9]*/environ 2>/dev/null
    done | cut -d/ -f3 || :
}

# pids_of_root DIRECTORY: all that a checkout in this directory has started.
pids_of_root() {
    local quoted
    quoted=$(sed 's/[][\.*^$(){}?+|]/\\&/g' <<<"$1")
    grep -lzE -- "^ARKIV_DEV_SERVER=$quoted:" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || :
}

signal() {
    local sig=$1
    shift
    [[ $# -eq 0 ]] || kill -"$sig" "$@" 2>/dev/null || :
}

# gone SECONDS FUNCTION ARGS...: waits until FUNCTION prints no pid any more.
gone() {
    local end=$((SECONDS + $1))
    shift
    while [[ $("$@") ]]; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# stop SIGNAL SECONDS NAME...: asks, waits, then kills.
stop() {
    local sig=$1 wait=$2
    shift 2
    # shellcheck disable=SC2046
    signal "$sig" $(pids "$@")
    gone "$wait" pids "$@" && return
    say "$* did not stop within $wait s: killed"
    # shellcheck disable=SC2046
    signal KILL $(pids "$@")
    gone 10 pids "$@" || die "$* cannot be killed; look at: ps $(pids "$@" | xargs)"
}

# --- files -----------------------------------------------------------------------------------------------------------

# put FILE [MODE]: replaces FILE by stdin in one step; says by its status whether anything changed.
put() {
    local file=$1 mode=${2:-644} new
    new=$(mktemp "$1.XXXXXX")
    cat >"$new"
    if cmp -s "$new" "$file"; then
        rm -f "$new"
        return 1
    fi
    chmod "$mode" "$new" && mv -f "$new" "$file"
}

# --- ports -----------------------------------------------------------------------------------------------------------
# Twenty ports in a row, found by the checkout's path: two checkouts run side by side, a restart has the same ports.

PORTS_FIRST=20000 PORTS_STEP=20 PORTS_BLOCKS=450

listening() { awk '$4 == "0A" { n = split($2, part, ":"); print part[n] }' /proc/net/tcp /proc/net/tcp6 2>/dev/null; }

# port_free PORT LISTENING
port_free() { [[ $'\n'$2$'\n' != *$'\n'"$(printf '%04X' "$1")"$'\n'* ]]; }

block_free() {
    local port busy
    busy=$(listening)
    for ((port = $1; port < $1 + PORTS_STEP; port++)); do port_free "$port" "$busy" || return 1; done
}

hash_of() { cksum <<<"$1" | cut -d' ' -f1; }

pick_ports() {
    local hash i base
    hash=$(hash_of "$ROOT")
    for ((i = 0; i < PORTS_BLOCKS; i++)); do
        base=$((PORTS_FIRST + (hash + i) % PORTS_BLOCKS * PORTS_STEP))
        if block_free "$base"; then
            put "$DEV/ports" < <(printf 'PORT_BASE=%s\n' "$base") || :
            return
        fi
    done
    die "no $PORTS_STEP free ports in a row between $PORTS_FIRST and $((PORTS_FIRST + PORTS_STEP * PORTS_BLOCKS))"
}

load_ports() {
    # shellcheck source=/dev/null
    . "$DEV/ports"
    PORT_HTTP=$PORT_BASE
    PORT_POSTGRES=$((PORT_BASE + 1))
    PORT_AMQP=$((PORT_BASE + 2))
    PORT_MANAGEMENT=$((PORT_BASE + 3))
    PORT_ERLANG=$((PORT_BASE + 4))
    PORT_EPMD=$((PORT_BASE + 5))
    PORT_S3=$((PORT_BASE + 6))
    PORT_MON=$((PORT_BASE + 7))
    PORT_OSD_FIRST=$((PORT_BASE + 8)) PORT_OSD_LAST=$((PORT_BASE + 19))
}

# --- secrets ---------------------------------------------------------------------------------------------------------

hex() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }

load_secrets() {
    if [[ ! -s $DEV/secrets ]]; then
        put "$DEV/secrets" 600 <<END || :
PG_ADMIN_PASSWORD=$(hex 16)
PG_OWNER_PASSWORD=$(hex 16)
PG_API_PASSWORD=$(hex 16)
PG_WORKER_PASSWORD=$(hex 16)
AMQP_ARKIV_PASSWORD=$(hex 16)
AMQP_STORE_PASSWORD=$(hex 16)
AMQP_ADMIN_PASSWORD=$(hex 16)
S3_ADMIN_KEY=$(hex 10)
S3_ADMIN_SECRET=$(hex 20)
S3_WORKER_KEY=$(hex 10)
S3_WORKER_SECRET=$(hex 20)
S3_SIGNER_KEY=$(hex 10)
S3_SIGNER_SECRET=$(hex 20)
S3_READER_KEY=$(hex 10)
S3_READER_SECRET=$(hex 20)
JWT_SECRET=$(hex 32)
END
    fi
    # shellcheck source=/dev/null
    . "$DEV/secrets"
    SECRETS_ID=$(cksum <"$DEV/secrets")
}
