# shellcheck shell=bash
# A private Ceph of the smallest kind: one monitor, one OSD on bluestore (a kill loses nothing), one RADOS gateway, which
# speaks S3. No manager, no cephx, loopback only, everything below .dev/ceph.

CEPH=$DEV/ceph
CEPH_DAEMONS=(ceph-rgw ceph-osd ceph-mon) # in the order they are stopped

# 404 for a bucket that nobody makes: to know that, the gateway had to ask the OSD.
ceph_answers() {
    [[ $(curl -s -m 2 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT_S3/arkiv-dev-probe-$RANDOM$RANDOM") == 404 ]]
}

ceph_all_run() {
    local name
    for name in "${CEPH_DAEMONS[@]}"; do [[ $(pids "$name") ]] || return 1; done
}

ceph_start() {
    local t0 changed=''
    t0=$(now_ms)
    mkdir -p "$CEPH" && chmod 700 "$CEPH"
    if [[ ! -e $CEPH/complete || ! -e $CEPH/mon/store.db || ! -s $CEPH/osd/ready ]]; then
        # never came up once, so nobody can have stored anything and what there is may be half made; or half deleted
        ceph_kill
        rm -rf "${CEPH:?}"/*
    fi
    [[ -s $CEPH/fsid ]] || put "$CEPH/fsid" </proc/sys/kernel/random/uuid || :
    ceph_configure && changed=1
    if [[ -e $CEPH/complete && ! $changed ]] && ceph_all_run && [[ $(cat "$CEPH/complete") == "$SECRETS_ID" ]] && ceph_answers; then
        return
    fi
    [[ ! $changed ]] || ceph_stop
    : >>"$CEPH/keyring"
    [[ -e $CEPH/complete ]] || ceph_create
    ceph_run
    ceph_wait || {
        say "Ceph's gateway runs and does not answer: started again"
        ceph_stop
        ceph_run
        ceph_wait || { tail -n 5 "$DEV"/log/ceph-*.log >&2; die "Ceph did not start (logs: .dev/log/ceph-*.log); to begin anew: ./dev down --wipe"; }
    }
    ceph_users
    put "$CEPH/complete" <<<"$SECRETS_ID" || :
    say "Ceph's S3 gateway is ready ($(seconds_since "$t0"))"
}

ceph_run() {
    [[ $(pids ceph-mon) ]] || { ceph_monmap && spawn ceph-mon "$DEV/log/ceph-mon.log" ceph-mon -c "$CEPH/ceph.conf" --no-mon-config -i a -f; }
    [[ $(pids ceph-osd) ]] || spawn ceph-osd "$DEV/log/ceph-osd.log" ceph-osd -c "$CEPH/ceph.conf" --no-mon-config -i 0 -f
    [[ $(pids ceph-rgw) ]] || spawn ceph-rgw "$DEV/log/ceph-rgw.log" bash -c "$CEPH_KEEPER" ceph-rgw "$CEPH/ceph.conf"
}

# This version of the gateway crashes now and then in its AMQP thread, while it looks for brokers that are gone. Something
# starts it again wherever it is run in earnest, so something does here too.
# shellcheck disable=SC2016
CEPH_KEEPER='
    trap "ending=1; kill -TERM \$gateway 2>/dev/null" TERM
    until [[ $ending ]]; do
        radosgw -c "$1" --no-mon-config -n client.rgw.a -f &
        gateway=$!
        wait $gateway || wait $gateway
        [[ $ending ]] || { echo "the gateway has ended; starting it again"; sleep 0.2; }
    done'

# A daemon that dies on its first steps is started again: see ceph_register.
ceph_wait() {
    local end=$((SECONDS + 60)) starts=1
    until ceph_answers && ceph_all_run; do
        ((SECONDS < end)) || return 1
        sleep 0.1
        if ! ceph_all_run && ((starts < 5)); then
            starts=$((starts + 1))
            sleep 0.5
            ceph_run
        fi
    done
}

# The monitor keeps its own address in its store: tell it when this checkout's ports have moved.
ceph_monmap() {
    [[ $(cat "$CEPH/mon-port" 2>/dev/null) != "$PORT_MON" ]] || return 0
    monmaptool --create --clobber --fsid "$(cat "$CEPH/fsid")" --addv a "[v1:127.0.0.1:$PORT_MON]" "$CEPH/monmap" >/dev/null
    ceph-mon -c "$CEPH/ceph.conf" --no-mon-config -i a --inject-monmap "$CEPH/monmap" >>"$DEV/log/ceph-mon.log" 2>&1
    echo "$PORT_MON" >"$CEPH/mon-port"
}

ceph_create() {
    local osd
    mkdir -p "$CEPH"/{mon,osd,rgw,run}
    osd=$(cat /proc/sys/kernel/random/uuid)
    monmaptool --create --clobber --fsid "$(cat "$CEPH/fsid")" --addv a "[v1:127.0.0.1:$PORT_MON]" "$CEPH/monmap" >/dev/null
    ceph-mon -c "$CEPH/ceph.conf" --no-mon-config -i a --mkfs --monmap "$CEPH/monmap" >>"$DEV/log/ceph-mon.log" 2>&1
    echo "$PORT_MON" >"$CEPH/mon-port"
    spawn ceph-mon "$DEV/log/ceph-mon.log" ceph-mon -c "$CEPH/ceph.conf" --no-mon-config -i a -f
    ceph_register "$osd"
    ceph-osd -c "$CEPH/ceph.conf" --no-mon-config -i 0 --mkfs --osd-uuid "$osd" >>"$DEV/log/ceph-osd.log" 2>&1 ||
        { tail -n 20 "$DEV/log/ceph-osd.log" >&2; die "the OSD could not be made (log: .dev/log/ceph-osd.log)"; }
}

# Without cephx a client may send its first command before it has learned the cluster's id, and is refused. An OSD that
# registers itself would die of that, so it is done here, with patience.
ceph_register() {
    local try
    for try in 1 2 3 4 5 6; do
        printf '%s\n' "osd new $1" 'osd crush add osd.0 1.0 root=default host=dev' |
            timeout 60 ceph -c "$CEPH/ceph.conf" --connect-timeout 20 >>"$DEV/log/ceph-cli.log" 2>&1 && return
        sleep "0.$try"
    done
    tail -n 20 "$DEV/log/ceph-cli.log" "$DEV/log/ceph-mon.log" >&2
    die "Ceph's monitor did not take the OSD (logs: .dev/log/ceph-*.log)"
}

# One user for each of our identities. Made once, and again when .dev/secrets is new.
ceph_users() {
    [[ $(cat "$CEPH/complete" 2>/dev/null) != "$SECRETS_ID" ]] || return 0
    ceph_user arkiv-admin "$S3_ADMIN_KEY" "$S3_ADMIN_SECRET"
    ceph_user arkiv-worker "$S3_WORKER_KEY" "$S3_WORKER_SECRET"
    ceph_user arkiv-signer "$S3_SIGNER_KEY" "$S3_SIGNER_SECRET"
    ceph_user arkiv-reader "$S3_READER_KEY" "$S3_READER_SECRET"
}

ceph_user() {
    local verb
    for verb in create modify; do
        radosgw-admin -c "$CEPH/ceph.conf" user $verb --uid="$1" --display-name="$1" --access-key="$2" --secret-key="$3" \
            --max-buckets=100000 >>"$DEV/log/ceph-cli.log" 2>&1 && return
    done
    tail -n 20 "$DEV/log/ceph-cli.log" >&2
    die "Ceph's user $1 could not be made (log: .dev/log/ceph-cli.log)"
}

# Status 0: the file changed, so running daemons must start again.
ceph_configure() {
    put "$CEPH/ceph.conf" <<END
# Written by ./dev at each start.
[global]
fsid = $(cat "$CEPH/fsid")
mon initial members = a
mon host = v1:127.0.0.1:$PORT_MON
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms bind msgr2 = false
ms bind port min = $PORT_OSD_FIRST
ms bind port max = $PORT_OSD_LAST
auth cluster required = none
auth service required = none
auth client required = none
keyring = $CEPH/keyring
run dir = $CEPH/run
crash dir = $CEPH/run
heartbeat file = $CEPH/run/\$name.hb
# no sockets and no log files of their own: a socket's path may hold 107 bytes, and stderr goes to .dev/log
admin socket =
pid file =
log file =
log to stderr = true
err to stderr = true
log to syslog = false
# what a crash prints besides its stack
log max recent = 100
debug mon = 0/1
debug paxos = 0/1
debug osd = 0/1
debug bluestore = 0/1
debug bluefs = 0/1
debug bdev = 0/1
debug rocksdb = 0/1
debug ms = 0/0
# one copy of everything, on one OSD
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
rgw rados pool pg num min = 1
rgw user max buckets = 100000

[mon]
mon data = $CEPH/mon
mon cluster log to file = false
mon data avail warn = 1
mon data avail crit = 1
mon osd min down reporters = 1
# a lone monitor has nobody to wait for
paxos propose interval = 0.05
paxos min wait = 0.01
auth allow insecure global id reclaim = true
mon warn on insecure global id reclaim allowed = false

[osd]
osd data = $CEPH/osd
osd objectstore = bluestore
osd class dir = $(dirname "$(printf '%s\n' /usr/lib/*/rados-classes/libcls_rgw.so | head -n 1)")
osd class update on start = false
osd crush update on start = false
osd max pg per osd hard ratio = 100
osd numa auto affinity = false
# a killed gateway is forgotten this fast (seconds); until then each change of a bucket waits for its answer
osd client watch timeout = 5
osd op num shards = 2
osd op num threads per shard = 2
# a sparse file: it takes what is stored
bluestore block size = 10737418240
bluestore block path =
bluestore fsck on mkfs = false
bluestore cache autotune = false
bluestore cache size = 67108864

[client.rgw.a]
rgw data = $CEPH/rgw
rgw frontends = beast endpoint=127.0.0.1:$PORT_S3
rgw thread pool size = 64
# says that often (seconds) that it lives: well within the OSD's watch timeout
objecter tick interval = 1
client notify timeout = 3
# lets CreateTopic carry the broker's password when the request says X-Forwarded-Proto: https
rgw trust forwarded https = true
# with these threads this version crashes more often; garbage is only disk space here
rgw enable gc threads = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw run sync thread = false
rgw enable usage log = false
rgw enable ops log = false
rgw dynamic resharding = false
rgw override bucket index max shards = 1
rgw gc max objs = 4
rgw lc max objs = 4
rgw data log num shards = 4
rgw md log max shards = 4
rgw usage max shards = 1
rgw num zone opstate shards = 1
END
}

# This version of the gateway never gives up a vhost that it has once published to: at each one that tests have deleted it
# knocks ten times a second, for ever. Starting it again (half a second) is the only cure.
ceph_forget_vhosts() {
    [[ $(find "$DEV/log/rabbit.log" -newermt '-3 seconds' 2>/dev/null) ]] || return 0
    tail -n 100 "$DEV/log/rabbit.log" | grep -q "vhost .* not found" || return 0
    say "the S3 gateway still looks for deleted vhosts: started again"
    stop TERM 15 ceph-rgw
    ceph_run
    ceph_wait || die "Ceph's gateway does not answer (log: .dev/log/ceph-rgw.log); run: ./dev servers"
}

# Each after those that need it; a gateway with its OSD gone would wait for it.
ceph_stop() {
    local name
    for name in "${CEPH_DAEMONS[@]}"; do stop TERM 15 "$name"; done
}

ceph_kill() {
    # shellcheck disable=SC2046
    signal KILL $(pids "${CEPH_DAEMONS[@]}")
    gone 10 pids "${CEPH_DAEMONS[@]}" || die "Ceph cannot be killed: $(pids "${CEPH_DAEMONS[@]}" | xargs)"
}
