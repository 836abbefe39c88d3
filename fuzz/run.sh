#!/usr/bin/env bash
# Fuzzes one target: `fuzz/run.sh TARGET [SECONDS [SEED]]`. Needs the nightly toolchain and cargo-fuzz.
# libfuzzer writes findings to fuzz/artifacts/TARGET and learned inputs to fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?which target? one of $(ls bins | sed 's/\.rs$//' | tr '\n' ' ')}
seconds=${2:-60}
seed=${3:-1}
mkdir -p "corpus/$target"
# As every Rust program does, which the fuzzer's own `main` is not: writing to what has closed is an error.
trap '' PIPE
# Limits: 10 s an input, 2 GiB of memory, 64 MiB an allocation.
exec cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" "seeds/$target" -- \
    -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 \
    -print_final_stats=1
