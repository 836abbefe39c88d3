#!/usr/bin/env bash
# Traces to a real collector, and metrics to promtool; docs/evidence/measurements.md has the last run.
#   collector.sh ENSEMBLE DIR [COUNT]     DIR keeps the programs
# Rotel comes from PyPI. Debian's package of promtool would start a server, so it is unpacked and not installed.
set -euo pipefail
ensemble=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir" && cd "$dir"
rotel=$dir/venv/lib/rotel-agent
if [ ! -x "$rotel" ]; then
    python3 -m venv --clear venv
    venv/bin/pip install --quiet --no-deps rotel==0.0.1a15
    ln -sf "$(venv/bin/python -c 'import os, rotel; print(os.path.dirname(rotel.__file__))')/rotel-agent" "$rotel"
fi
promtool=$(command -v promtool || echo "$dir/prometheus/usr/bin/promtool")
if [ ! -x "$promtool" ]; then
    apt-get download -qq prometheus
    dpkg -x prometheus_*.deb prometheus
fi
python3 "$here/many.py" "$ensemble" "$rotel" "$promtool" "${3:-2000}"
