# shellcheck shell=bash
# Private RabbitMQs: the one in .dev/rabbit, and as many named ones as tests ask for (`./dev rabbit`), each with its
# own data, node, cookie, epmd and ports. Users and permissions are infra/rabbitmq/definitions.json, loaded at each boot.

RABBIT_SERVER=/usr/lib/rabbitmq/bin/rabbitmq-server # not the one on the PATH: that one changes user and directories

# rabbit_use [NAME]: the rest works on that instance. In: its ports, in RABBIT_*.
rabbit_use() {
    RABBIT_NAME=rabbit${1:+-$1}
    RABBIT_DIR=$DEV/$RABBIT_NAME
    RABBIT_LOG=$DEV/log/$RABBIT_NAME.log
    if [[ ! ${1:-} ]]; then
        RABBIT_AMQP=$PORT_AMQP RABBIT_MANAGEMENT=$PORT_MANAGEMENT RABBIT_ERLANG=$PORT_ERLANG RABBIT_EPMD=$PORT_EPMD
    fi
}

rabbit_pids() { pids "$RABBIT_NAME"; }

# The Erlang machine itself: the process that holds the data and understands TERM.
rabbit_beam() {
    local pid
    for pid in $(rabbit_pids); do
        [[ $(cat "/proc/$pid/comm" 2>/dev/null) == beam.smp ]] && echo "$pid"
    done
    return 0
}

rabbit_answers() {
    curl -sf -m 2 -o /dev/null -u "arkiv-admin:$AMQP_ADMIN_PASSWORD" "http://127.0.0.1:$RABBIT_MANAGEMENT/api/vhosts/%2f" &&
        (exec 3<>"/dev/tcp/127.0.0.1/$RABBIT_AMQP") 2>/dev/null
}

rabbit_start() {
    local t0 changed=''
    t0=$(now_ms)
    mkdir -p "$RABBIT_DIR/home" && chmod 700 "$RABBIT_DIR"
    rabbit_configure && changed=1
    if [[ -e $RABBIT_DIR/complete && ! $changed && $(rabbit_beam) ]] && rabbit_answers; then
        return
    fi
    if [[ ! -e $RABBIT_DIR/complete ]]; then
        # the first boot never ended: what it left may be half a schema
        rabbit_kill
        rm -rf "$RABBIT_DIR/data"
    elif [[ $changed || ! $(rabbit_beam) ]]; then
        rabbit_stop
    fi
    rabbit_run
    rabbit_wait || {
        say "$RABBIT_NAME does not answer: started again"
        rabbit_kill
        rabbit_run
        rabbit_wait || { tail -n 30 "$RABBIT_LOG" >&2; die "RabbitMQ did not start (log: .dev/log/$RABBIT_NAME.log)"; }
    }
    : >"$RABBIT_DIR/complete"
    say "RabbitMQ${1:+ $1} is ready ($(seconds_since "$t0"))"
}

rabbit_run() {
    [[ ! $(rabbit_beam) ]] || return 0
    spawn "$RABBIT_NAME" "$RABBIT_LOG" env -i PATH="$PATH" ARKIV_DEV_SERVER="$ROOT:$RABBIT_NAME" \
        HOME="$RABBIT_DIR/home" LANG=C.UTF-8 \
        RABBITMQ_NODENAME=arkiv@localhost RABBITMQ_DIST_PORT="$RABBIT_ERLANG" \
        ERL_EPMD_PORT="$RABBIT_EPMD" ERL_EPMD_ADDRESS=127.0.0.1 \
        RABBITMQ_MNESIA_BASE="$RABBIT_DIR/data" RABBITMQ_LOG_BASE="$RABBIT_DIR" RABBITMQ_LOGS=- \
        RABBITMQ_ENABLED_PLUGINS_FILE="$RABBIT_DIR/enabled_plugins" RABBITMQ_CONF_ENV_FILE=/dev/null \
        RABBITMQ_CONFIG_FILE="$RABBIT_DIR/rabbitmq.conf" RABBITMQ_PID_FILE="$RABBIT_DIR/pid" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}" \
        "$RABBIT_SERVER"
}

rabbit_wait() {
    local end=$((SECONDS + 60))
    until rabbit_answers; do
        ((SECONDS < end)) && { [[ ! ${SPAWNED:-} ]] || kill -0 "$SPAWNED" 2>/dev/null; } || return 1
        sleep 0.1
    done
}

# Status 0: a file changed, so a running broker must start again.
rabbit_configure() {
    local changed=1
    # Ceph's gateway looks at the exchange without declaring it, and reads its confirms through a queue of its own.
    sed -e "s/@ARKIV_PASSWORD@/$AMQP_ARKIV_PASSWORD/; s/@STORE_PASSWORD@/$AMQP_STORE_PASSWORD/" \
        -e "s/@ADMIN_PASSWORD@/$AMQP_ADMIN_PASSWORD/; s/@STORE_CONFIGURE@/^amq\\\\\\\\.gen-/" \
        "$ROOT/infra/rabbitmq/definitions.json" | put "$RABBIT_DIR/definitions.json" 600 && changed=0
    put "$RABBIT_DIR/enabled_plugins" <<<'[rabbitmq_management].' && changed=0
    put "$RABBIT_DIR/rabbitmq.conf" <<END && changed=0
# Written by ./dev at each start.
listeners.tcp.1 = 127.0.0.1:$RABBIT_AMQP
management.tcp.ip = 127.0.0.1
management.tcp.port = $RABBIT_MANAGEMENT
load_definitions = $RABBIT_DIR/definitions.json
# counts in the management API are at most a second old: tests wait for them
collect_statistics_interval = 1000
disk_free_limit.absolute = 100MB
vm_memory_high_watermark.absolute = 1GB
log.console.level = info
END
    return $changed
}

rabbit_stop() {
    # shellcheck disable=SC2046
    signal TERM $(rabbit_beam)
    gone 30 rabbit_beam || :
    rabbit_kill
}

# The broker and its helpers, epmd among them, which outlives every broker unless told otherwise.
rabbit_kill() {
    # shellcheck disable=SC2046
    signal KILL $(rabbit_pids)
    gone 10 rabbit_pids || die "RabbitMQ cannot be killed: $(rabbit_pids | xargs)"
}

# --- ./dev rabbit: brokers for tests that restart or wipe one ---------------------------------------------------------

RABBIT_PORTS_FIRST=29000 RABBIT_PORTS_STEP=4 RABBIT_PORTS_BLOCKS=900 # below 32768, where Linux takes clients' ports

rabbit_named() {
    local verb=${1:-} name=${2:-}
    [[ $verb =~ ^(start|stop|kill|wipe)$ && $name =~ ^[a-z0-9][a-z0-9-]*$ && $# -eq 2 ]] || {
        say "usage: ./dev rabbit start|stop|kill|wipe NAME   (NAME: a-z, 0-9, -)"
        exit 2
    }
    [[ -s $DEV/secrets ]] || die "no servers here yet; run: ./dev servers"
    load_secrets
    rabbit_use "$name"
    mkdir -p "$RABBIT_DIR"
    exec 9>>"$RABBIT_DIR/lock" # of this instance alone: tests work on several at once
    flock 9
    case $verb in
        start)
            [[ -s $RABBIT_DIR/ports ]] || rabbit_pick_ports "$name"
            rabbit_load_ports
            rabbit_start "$name"
            cat <<END
AMQP_URL=amqp://arkiv:$AMQP_ARKIV_PASSWORD@127.0.0.1:$RABBIT_AMQP/%2f
STORE_AMQP_URL=amqp://store:$AMQP_STORE_PASSWORD@127.0.0.1:$RABBIT_AMQP/%2f
MANAGEMENT_URL=http://arkiv-admin:$AMQP_ADMIN_PASSWORD@127.0.0.1:$RABBIT_MANAGEMENT
END
            ;;
        stop) rabbit_stop ;;
        kill) rabbit_kill ;;
        wipe)
            rabbit_kill
            find "$RABBIT_DIR" -mindepth 1 -maxdepth 1 ! -name ports ! -name lock -exec rm -rf {} +
            ;;
    esac
}

# Once for each name; kept, so that a client's URL outlives a restart and a wipe.
rabbit_pick_ports() {
    local hash i base port busy
    exec 8>>"$DEV/rabbit.lock"
    flock 8
    hash=$(hash_of "$ROOT/$1") busy=$(listening)
    for ((i = 0; i < RABBIT_PORTS_BLOCKS; i++)); do
        base=$((RABBIT_PORTS_FIRST + (hash + i) % RABBIT_PORTS_BLOCKS * RABBIT_PORTS_STEP))
        grep -qsx "PORT_BASE=$base" "$DEV"/rabbit-*/ports && continue
        for ((port = base; port < base + RABBIT_PORTS_STEP; port++)); do
            port_free "$port" "$busy" || continue 2
        done
        put "$RABBIT_DIR/ports" < <(printf 'PORT_BASE=%s\n' "$base") || :
        exec 8>&-
        return
    done
    die "no $RABBIT_PORTS_STEP free ports in a row above $RABBIT_PORTS_FIRST"
}

rabbit_load_ports() {
    local PORT_BASE
    # shellcheck source=/dev/null
    . "$RABBIT_DIR/ports"
    RABBIT_AMQP=$PORT_BASE RABBIT_MANAGEMENT=$((PORT_BASE + 1)) RABBIT_ERLANG=$((PORT_BASE + 2)) RABBIT_EPMD=$((PORT_BASE + 3))
}
