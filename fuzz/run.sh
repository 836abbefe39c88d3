#!/usr/bin/env bash
# Fuzzes one target: `fuzz/run.sh TARGET [SECONDS [SEED]]`. Needs the nightly toolchain and cargo-fuzz.
# What is found is left in fuzz/artifacts/TARGET, what was learned in fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?which target? one of $(ls bins | sed 's/\.rs$//' | tr '\n' ' ')}
seconds=${2:-60}
seed=${3:-1}
mkdir -p "corpus/$target"
# One input may take 10 s, all together 2 GiB, and one allocation 64 MiB.
exec cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" "seeds/$target" -- \
    -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 \
    -print_final_stats=1
