# shellcheck shell=bash
# Our own binary: built into a target directory that all checkouts share, copied to .dev/bin and run from there.

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/arkiv/target}
export SQLX_OFFLINE=true # queries are checked against shared/store/.sqlx; only ./dev sqlx asks a database

ARKIV=$DEV/bin/arkiv
READY_SECONDS_MAX=60

# The copy is made under the lock that the build ran under: another checkout's build would replace the file.
arkiv_build() {
    local new
    need_cargo
    mkdir -p "$CARGO_TARGET_DIR" "$DEV/bin"
    exec 8>>"$CARGO_TARGET_DIR/.arkiv-dev.lock"
    flock -n 8 || { say "waiting for another checkout's build"; flock 8; }
    cargo build --locked --bin arkiv >&2 8>&- || die "the build failed; see above"
    if ! cmp -s "$CARGO_TARGET_DIR/debug/arkiv" "$ARKIV"; then
        new=$(mktemp "$DEV/bin/arkiv.XXXXXX")
        cp --reflink=auto "$CARGO_TARGET_DIR/debug/arkiv" "$new"
        chmod 755 "$new"
        mv -f "$new" "$ARKIV"
    fi
    exec 8>&-
}

arkiv_url() { printf 'http://127.0.0.1:%s' "$ARKIV_HTTP_PORT"; }
arkiv_ready() { [[ $(curl -s -m 2 -o /dev/null -w '%{http_code}' "$(arkiv_url)/readyz") == 200 ]]; }
arkiv_pids() { pids arkiv; }

# The process that was started, not its children (it leads the session): it alone is asked to stop.
arkiv_main() {
    local pid
    for pid in $(arkiv_pids); do
        [[ $(ps -o sid= -p "$pid") -eq $pid ]] && echo "$pid"
    done
    return 0
}

# Runs on while binary and settings are the same; else stop, migrate, setup, start.
arkiv_start() {
    local main stamp t0 end step before
    stamp=$(cksum <"$DEV/env")
    main=$(arkiv_main)
    if [[ $main && /proc/$main/exe -ef $ARKIV && $(cat "$DEV/arkiv.stamp" 2>/dev/null) == "$stamp" ]] && arkiv_ready; then
        say "arkiv runs already at $(arkiv_url)"
        return
    fi
    arkiv_stop
    t0=$(now_ms)
    for step in migrate setup; do
        "$ARKIV" $step </dev/null >"$DEV/log/$step.log" 2>&1 9>&- || {
            tail -n 30 "$DEV/log/$step.log" >&2
            die "arkiv $step failed (log: .dev/log/$step.log); to try it alone: ./dev arkiv $step"
        }
    done
    say "schema, bucket and queues are set up ($(seconds_since "$t0"))"
    t0=$(now_ms)
    before=$(stat -c %s "$DEV/log/arkiv.log" 2>/dev/null || echo 0)
    spawn arkiv "$DEV/log/arkiv.log" "$ARKIV" up
    main=$SPAWNED
    echo "$main" >"$DEV/arkiv.pid" # for people; ./dev itself looks for the process
    echo "$stamp" >"$DEV/arkiv.stamp"
    end=$((SECONDS + READY_SECONDS_MAX))
    until arkiv_ready; do
        if ! kill -0 "$main" 2>/dev/null; then
            tail -c "+$((before + 1))" "$DEV/log/arkiv.log" | tail -n 30 >&2
            die "arkiv ended while it started; the whole log: .dev/log/arkiv.log; run it in view: ./dev arkiv up"
        fi
        if ((SECONDS >= end)); then
            tail -c "+$((before + 1))" "$DEV/log/arkiv.log" | tail -n 30 >&2
            curl -s -m 2 "$(arkiv_url)/readyz" >&2 || :
            die "arkiv is not ready after $READY_SECONDS_MAX s (above: its log and what /readyz says); it runs on, look with: ./dev logs"
        fi
        (($(now_ms) - t0 > 3000)) && (((SECONDS - end) % 5 == 0)) && say "waiting for $(arkiv_url)/readyz ($(seconds_since "$t0"))" && sleep 0.9
        sleep 0.1
    done
    say "arkiv is ready at $(arkiv_url) ($(seconds_since "$t0"))"
}

# Its children end with it; those that outlive it (it was killed) have nothing left to finish.
arkiv_stop() {
    local main
    [[ $(arkiv_pids) ]] || return 0
    main=$(arkiv_main)
    [[ ! $main ]] || signal TERM "$main"
    gone 45 arkiv_main || say "arkiv did not stop within 45 s: killed"
    # shellcheck disable=SC2046
    signal KILL $(arkiv_pids)
    gone 10 arkiv_pids || die "arkiv cannot be killed: $(arkiv_pids | xargs)"
}
