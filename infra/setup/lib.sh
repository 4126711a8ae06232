# What the set-up scripts share. Sourced, never run.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the sourcing scripts use the variables

set -euo pipefail
# A user's PATH lacks the folder where Debian puts servers.
PATH="$PATH:/usr/sbin"

# What is fetched or prepared once per user, shared by all clones. Nothing in it is precious: delete it at will.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/podhost"

# The oldest MySQL that Podhost runs on: the first with the words source and replica everywhere.
oldest_mysql=8.0.26

# Progress and faults go to stderr: stdout is what another program reads.
say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# as_root <command...>: runs it as it is, or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root and there is no sudo here; run as root: $*"
    fi
}

# slow <what> <command...>: says what is going on, every five seconds that it still is, and how it ended. The output is
# kept and shown only if the command fails.
slow() {
    local what=$1 log began pid status=0
    shift
    log=$(mktemp)
    began=$SECONDS
    printf '  %s ' "$what" >&2
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        if [ $((SECONDS - began)) -ge 5 ] && [ $(((SECONDS - began) % 5)) = 0 ]; then
            printf '.' >&2
            sleep 1
        fi
    done
    wait "$pid" || status=$?
    if [ "$status" != 0 ]; then
        say "failed:"
        tail -n 30 "$log" >&2
    else
        say "done ($((SECONDS - began)) s)"
    fi
    rm -f "$log"
    return "$status"
}

# at_least <version> <oldest>
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
