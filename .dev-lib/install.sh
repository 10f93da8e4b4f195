# shellcheck shell=bash
# Installs the Debian packages that are missing, and only these, and says so. No service of theirs is started or left
# enabled, no database cluster left behind: ./dev runs its own.

# program that must be there | package that brings it | what for
NEEDS='
/usr/lib/postgresql/15/bin/initdb|postgresql-15|the database
/usr/lib/rabbitmq/bin/rabbitmq-server|rabbitmq-server|the broker
/usr/bin/radosgw|radosgw|the S3 server
/usr/bin/ceph-mon|ceph-mon|the S3 server
/usr/bin/ceph-osd|ceph-osd|the S3 server
/usr/bin/curl|curl|asking the servers whether they are up
/usr/bin/setpriv|util-linux|running PostgreSQL as its own user
/usr/bin/awk|mawk|reading the list of ports in use
/usr/bin/ps|procps|naming processes in messages
/usr/bin/find|findutils|finding our processes
/usr/bin/cc|gcc|building native code of crates
/usr/bin/cmake|cmake|building the JPEG decoder
/usr/bin/nasm|nasm|building the JPEG decoder
/usr/bin/pkg-config|pkg-config|building native code of crates
'

install_missing() {
    local file package reason packages=()
    while IFS='|' read -r file package reason; do
        [[ ! $file || -e $file ]] && continue
        [[ $package == postgresql-15 ]] && pg_find && continue
        say "missing: $package ($reason)"
        packages+=("$package")
    done <<<"$NEEDS"
    [[ ${#packages[@]} -eq 0 ]] || install_packages "${packages[@]}"
    pg_find || die "PostgreSQL is installed and not found in /usr/lib/postgresql; look at: ls /usr/lib/postgresql/*/bin"
}

need_cargo() {
    command -v cargo >/dev/null && return
    [[ -x $HOME/.cargo/bin/cargo ]] && PATH=$HOME/.cargo/bin:$PATH && return
    say "cargo is missing; get it with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    exit 2
}

install_packages() {
    local sudo=() before policy='' unit status=0
    command -v apt-get >/dev/null || { say "no apt-get here; install by hand: $*"; exit 2; }
    if ((EUID != 0)); then
        command -v sudo >/dev/null || { say "not root and no sudo; run as root: apt-get install --no-install-recommends $*"; exit 2; }
        sudo=(sudo)
    fi
    say "installing with apt-get: $*"
    before=$(ls /etc/postgresql/*/ -d 2>/dev/null || :)
    # Debian's way to say that a package's services must not start; ours only where nobody has put one
    if [[ ! -e /usr/sbin/policy-rc.d ]]; then
        policy=$(mktemp)
        printf '#!/bin/sh\n# put here by ./dev for one apt-get run\nexit 101\n' >"$policy"
        "${sudo[@]}" install -m 755 "$policy" /usr/sbin/policy-rc.d
        rm -f "$policy"
        policy=/usr/sbin/policy-rc.d
        # shellcheck disable=SC2064
        trap "${sudo[*]} rm -f $policy" EXIT INT TERM
    fi
    local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    {
        "${apt[@]}" install -y --no-install-recommends "$@" ||
            { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; }
    } >"$DEV/log/apt.log" 2>&1 9>&- || status=1
    if [[ $policy ]]; then
        "${sudo[@]}" rm -f "$policy"
        trap - EXIT INT TERM
    fi
    if ((status)); then
        tail -n 15 "$DEV/log/apt.log" >&2
        die "apt-get failed (log: .dev/log/apt.log); the next step is by hand: apt-get update && apt-get install $*"
    fi
    # what the packages' scripts left: a database cluster nobody asked for, services that would start with the machine
    if [[ ! $before && " $* " == *" postgresql"* && -d /etc/postgresql ]] && command -v pg_lsclusters >/dev/null; then
        pg_lsclusters -h | while read -r version name _; do
            "${sudo[@]}" pg_dropcluster "$version" "$name"
        done
    fi
    command -v systemctl >/dev/null || return 0
    for unit in $(install_units "$@"); do "${sudo[@]}" systemctl disable --quiet "$unit" >/dev/null 2>&1 || :; done
}

install_units() {
    local package
    for package; do
        case $package in
            postgresql-*) echo postgresql.service ;;
            rabbitmq-server) echo rabbitmq-server.service epmd.service epmd.socket ;;
            radosgw) echo ceph-radosgw.target ;;
            ceph-mon) echo ceph-mon.target ceph-crash.service ceph.target ;;
            ceph-osd) echo ceph-osd.target ceph.target ;;
        esac
    done
}
