# Sourced by test.sh: `private_dockerd` starts a Docker daemon of our own and exports DOCKER_HOST, `stop_dockerd` ends
# it and removes its data. A daemon that is there already, and its images, stay untouched. Where it cannot be done one
# line says why, and the tests marked `docker` are skipped.

private_dockerd() {
    local why
    [ -z "${DOCKER_HOST:-}" ] || { echo "docker tests use the daemon at $DOCKER_HOST"; return 0; }
    _sweep_dockerd
    if ! why="$(_dockerd_missing)"; then
        _skip_docker "$why"
        return 0
    fi
    DOCKERD_FOLDER="$(mktemp -d "$(_dockerd_parent)/refork-dockerd.XXXXXX")"
    _start_dockerd && _dockerd_answers && return 0
    why="the private dockerd did not start: $(grep -v level=info "$DOCKERD_FOLDER/log" | tail -n 1 || true)"
    stop_dockerd
    _skip_docker "$why"
}

# Have the image that all others are made on, with the Python $1. Downloads take as long as they take: not in a test.
docker_base_image() {
    local said
    [ -z "${REFORK_DOCKER_SKIPPED:-}" ] || return 0
    if ! said="$("$1" -m refork.envs.swe.images 2>&1)"; then
        stop_dockerd
        _skip_docker "$(echo "$said" | tail -n 1)"
    fi
}

_skip_docker() {
    echo "docker tests skipped: $1"
    export REFORK_DOCKER_SKIPPED="$1" DOCKER_HOST="unix:///no-daemon-for-tests.sock"
}

# Where its folder is made: the names of its sockets must stay below 108 bytes.
_dockerd_parent() {
    local parent="${TMPDIR:-/tmp}"
    if [ "${#parent}" -le 40 ]; then echo "$parent"; else echo /tmp; fi
}

# Prints what is missing and fails, or makes it be there.
_dockerd_missing() {
    if [ "$(id -u)" != 0 ]; then
        echo "a private dockerd needs root"
        return 1
    fi
    command -v dockerd >/dev/null && command -v debootstrap >/dev/null && return 0
    if ! command -v apt-get >/dev/null; then
        command -v dockerd >/dev/null && return 0
        echo "dockerd is not installed, and there is no apt to install it with"
        return 1
    fi
    _apt_install docker.io debootstrap >&2 && return 0
    command -v dockerd >/dev/null && return 0
    echo "apt could not install docker.io"
    return 1
}

# Package scripts must not start a daemon of their own on this machine: policy-rc.d forbids it for as long as it lies there.
_apt_install() {
    local policy=/usr/sbin/policy-rc.d ours=""
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && ours=1
    fi
    echo "installing $*"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null
    local result=$?
    [ -z "$ours" ] || rm -f "$policy"
    return $result
}

_start_dockerd() {
    mkdir -p "$DOCKERD_FOLDER/data" "$DOCKERD_FOLDER/exec"
    echo $$ >"$DOCKERD_FOLDER/owner"
    setsid dockerd --host "unix://$DOCKERD_FOLDER/docker.sock" --data-root "$DOCKERD_FOLDER/data" \
        --exec-root "$DOCKERD_FOLDER/exec" --pidfile "$DOCKERD_FOLDER/pid" --iptables=false --ip6tables=false \
        --bridge=none --storage-driver=overlay2 >"$DOCKERD_FOLDER/log" 2>&1 </dev/null &
    DOCKERD_PID=$!
    export DOCKER_HOST="unix://$DOCKERD_FOLDER/docker.sock"
}

_dockerd_answers() {
    local try
    for try in $(seq 150); do
        kill -0 "$DOCKERD_PID" 2>/dev/null || return 1
        grep -q "API listen on" "$DOCKERD_FOLDER/log" && return 0
        sleep 0.2
    done
    return 1
}

stop_dockerd() {
    [ -n "${DOCKERD_FOLDER:-}" ] || return 0
    _end_dockerd "$DOCKERD_FOLDER"
    unset DOCKERD_FOLDER DOCKERD_PID DOCKER_HOST
}

# End the daemon that has its folder at $1, wait for it, and remove the folder.
_end_dockerd() {
    local pid
    pid="$(cat "$1/pid" 2>/dev/null || true)"
    if grep -qa "$1/docker.sock" "/proc/${pid:-none}/cmdline" 2>/dev/null; then
        kill "$pid" 2>/dev/null || true
        timeout 30 tail --pid="$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
    fi
    awk -v root="$1/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l 2>/dev/null || true
    rm -rf "$1"
}

# What a killed run of ours has left behind.
_sweep_dockerd() {
    local folder owner
    for folder in "$(_dockerd_parent)"/refork-dockerd.*; do
        [ -f "$folder/owner" ] && [ "$(id -u)" = 0 ] || continue
        owner="$(cat "$folder/owner")"
        grep -qa test.sh "/proc/$owner/cmdline" 2>/dev/null || _end_dockerd "$folder"
    done
}
