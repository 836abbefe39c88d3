#!/usr/bin/env bash
# The public MCP conformance suite against `ensemble mcp --http`: the server scenarios of the features
# that we declare and that need no tools of the suite's own. Usage: conformance.sh ENSEMBLE
set -euo pipefail

ensemble=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
cache=${ENSEMBLE_MCP_CACHE:-$(dirname "$ensemble")/../tmp/mcp-conformance}
scenarios=(server-initialize ping tools-list resources-list dns-rebinding-protection
    server-sse-multiple-streams server-sse-polling)

# The suite needs Node 22; npm has it as a package.
mkdir -p "$cache"
cd "$cache"
if [ ! -e installed ]; then
    npm init -y >/dev/null
    npm install --silent @modelcontextprotocol/conformance@0.1.16 node@22
    touch installed
fi
node=$cache/node_modules/node/bin/node
[ -x "$node" ] || node=$(command -v node)

home=$(mktemp -d)
trap 'kill "${server:-}" "${proxy:-}" 2>/dev/null || true; rm -rf "$home"' EXIT
cd "$home"
"$ensemble" init >/dev/null
"$ensemble" mailbox add Tara >/dev/null
coproc SERVER { exec "$ensemble" --json mcp --as Tara --http 0; }
server=$SERVER_PID
read -r line <&"${SERVER[0]}"
url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' <<<"$line")
token=$(sed 's/.*"token":"\([^"]*\)".*/\1/' <<<"$line")
address=${url#http://}
# The suite cannot send a bearer token.
python3 "$here/with_token.py" "${address%/mcp}" "$token" >port &
proxy=$!
until [ -s port ]; do read -rt 0.1 <> <(:) || true; done

failed=0
for scenario in "${scenarios[@]}"; do
    printf '%-32s' "$scenario"
    if "$node" "$cache/node_modules/.bin/conformance" server \
        --url "http://127.0.0.1:$(cat port)/mcp" --scenario "$scenario" >out 2>&1; then
        grep -E '^Passed' out || tail -1 out
    else
        cat out
        failed=1
    fi
done
exit $failed
