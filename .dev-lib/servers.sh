# shellcheck shell=bash
# The three servers together, and the file that tells everybody else where they are: .dev/env.

servers_up() {
    local failed='' job jobs=()
    case ${ARKIV_DEV_STORE:-ceph} in
        ceph) ;;
        *) say "ARKIV_DEV_STORE=$ARKIV_DEV_STORE is not supported yet; unset it to use Ceph's gateway"; exit 2 ;;
    esac
    case $ROOT in
        *[][*?{}\'\"\\$\`]* | *$'\n'*) say "RabbitMQ loses data in a path with quotes, brackets or wildcards: move the checkout"; exit 2 ;;
    esac
    install_missing
    settle_checkout
    load_secrets
    settle_ports
    (pg_start) & jobs+=($!)
    (rabbit_use && rabbit_start) & jobs+=($!)
    (ceph_start) & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || failed=1; done
    [[ ! $failed ]] || die "not all servers are up; once the cause above is mended run it again: it goes on from here"
    write_env
}

# .dev belongs to one place. Moved along with the checkout, its daemons still carry the old name: they are stopped. Copied
# beside a living original, its data is a torn snapshot: it is dropped.
settle_checkout() {
    local was id
    was=$(cat "$DEV/home" 2>/dev/null || :) id=$(cat "$DEV/id" 2>/dev/null || :)
    if [[ ! $id ]]; then
        # nothing here, or half deleted under running servers
        kill_all_of "$ROOT"
        put "$DEV/id" < <(hex 8) || :
    elif [[ $was && $was != "$ROOT" ]]; then
        if [[ $(cat "$was/.dev/id" 2>/dev/null) == "$id" ]]; then
            say ".dev was copied from $was: this checkout gets servers of its own"
            find "$DEV" -mindepth 1 -maxdepth 1 ! -name lock ! -name log -exec rm -rf {} +
            put "$DEV/id" < <(hex 8) || :
        else
            say ".dev was moved from $was: the broker begins anew (its files hold their old path), the rest is kept"
            kill_all_of "$was"
            rm -rf "$DEV/ports" "$DEV"/rabbit "$DEV"/rabbit-*/
        fi
    fi
    put "$DEV/home" <<<"$ROOT" || :
}

# Our ports, or others when a stranger sits on one of those that we need now.
settle_ports() {
    [[ -s $DEV/ports ]] || { servers_stop_quietly; pick_ports; }
    load_ports
    ports_disputed || return 0
    say "another program listens on one of the ports $PORT_BASE to $((PORT_BASE + PORTS_STEP - 1)): moving to others"
    servers_stop_quietly
    pick_ports
    load_ports
}

# Of a server that does not run the ports must be free.
ports_disputed() {
    local busy port needed=()
    busy=$(listening)
    pg_as
    [[ $(pg_pids) ]] || needed+=("$PORT_POSTGRES")
    [[ $(pids rabbit) ]] || needed+=("$PORT_AMQP" "$PORT_MANAGEMENT" "$PORT_ERLANG" "$PORT_EPMD")
    [[ $(pids ceph-rgw) ]] || needed+=("$PORT_S3")
    [[ $(pids ceph-mon) ]] || needed+=("$PORT_MON")
    [[ $(pids arkiv) ]] || needed+=("$PORT_HTTP")
    for port in "${needed[@]}"; do port_free "$port" "$busy" || return 0; done
    return 1
}

servers_stop_quietly() {
    stop TERM 45 arkiv
    servers_stop
}

servers_stop() {
    local job jobs=() dir failed=''
    (pg_stop) & jobs+=($!)
    (ceph_stop) & jobs+=($!)
    for dir in "$DEV"/rabbit "$DEV"/rabbit-*/; do
        dir=$(basename "$dir")
        [[ $(pids "$dir") ]] || continue
        (RABBIT_NAME=$dir && rabbit_stop) & jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || failed=1; done
    kill_all_of "$ROOT"
    for dir in "$DEV"/rabbit-*/; do
        # a test's broker that was wiped and not started again: nobody comes back for it
        [[ ! -d $dir || -e $dir/complete ]] || rm -rf "$dir" "$DEV/log/$(basename "$dir").log"
    done
    [[ ! $failed ]]
}

kill_all_of() {
    # shellcheck disable=SC2046
    signal KILL $(pids_of_root "$1")
    gone 10 pids_of_root "$1" || die "cannot be killed: $(pids_of_root "$1" | xargs)"
}

write_env() {
    local host=127.0.0.1 root
    root="'${ROOT//\'/\'\\\'\'}'"
    put "$DEV/env" 600 <<END || :
ARKIV_MODE=development
ARKIV_LISTEN=$host:$PORT_HTTP
ARKIV_HTTP_PORT=$PORT_HTTP
ARKIV_PUBLIC_URL=http://$host:$PORT_HTTP
ARKIV_DATABASE_URL=postgres://arkiv_worker:$PG_WORKER_PASSWORD@$host:$PORT_POSTGRES/arkiv
ARKIV_API_DATABASE_URL=postgres://arkiv_api:$PG_API_PASSWORD@$host:$PORT_POSTGRES/arkiv
ARKIV_OWNER_DATABASE_URL=postgres://arkiv_owner:$PG_OWNER_PASSWORD@$host:$PORT_POSTGRES/arkiv
ARKIV_AMQP_URL=amqp://arkiv:$AMQP_ARKIV_PASSWORD@$host:$PORT_AMQP/%2f
ARKIV_AMQP_STORE_URL=amqp://store:$AMQP_STORE_PASSWORD@$host:$PORT_AMQP/%2f
ARKIV_AMQP_MANAGEMENT_URL=http://arkiv-admin:$AMQP_ADMIN_PASSWORD@$host:$PORT_MANAGEMENT
ARKIV_S3_ENDPOINT=http://$host:$PORT_S3
ARKIV_S3_REGION=default
ARKIV_S3_BUCKET=arkiv
ARKIV_S3_KIND=ceph
ARKIV_S3_ADMIN_ACCESS_KEY=$S3_ADMIN_KEY
ARKIV_S3_ADMIN_SECRET_KEY=$S3_ADMIN_SECRET
ARKIV_S3_WORKER_ACCESS_KEY=$S3_WORKER_KEY
ARKIV_S3_WORKER_SECRET_KEY=$S3_WORKER_SECRET
ARKIV_S3_WORKER_PRINCIPAL=arn:aws:iam:::user/arkiv-worker
ARKIV_S3_SIGNER_ACCESS_KEY=$S3_SIGNER_KEY
ARKIV_S3_SIGNER_SECRET_KEY=$S3_SIGNER_SECRET
ARKIV_S3_SIGNER_PRINCIPAL=arn:aws:iam:::user/arkiv-signer
ARKIV_S3_READER_ACCESS_KEY=$S3_READER_KEY
ARKIV_S3_READER_SECRET_KEY=$S3_READER_SECRET
ARKIV_S3_READER_PRINCIPAL=arn:aws:iam:::user/arkiv-reader
ARKIV_JWT_HS256_SECRET=$JWT_SECRET
ARKIV_JWT_ISSUER=arkiv-dev
ARKIV_JWT_AUDIENCE=arkiv
ARKIV_CORS_ORIGINS=${ARKIV_CORS_ORIGINS-http://127.0.0.1:8000,http://localhost:8000}
ARKIV_DEV_ROOT=$root
END
}

load_env() {
    [[ -s $DEV/env ]] || die "no .dev/env yet; run: ./dev servers"
    set -a
    # shellcheck source=/dev/null
    . "$DEV/env"
    set +a
}
