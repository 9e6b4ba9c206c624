#!/usr/bin/env bash
# Runs each fuzz target, <name>_fuzz, for FUZZ_SECONDS over tests/fuzz/corpus/<name>. New finds are kept in build/fuzz/corpus/<name>, an
# input that breaks the target in build/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
cmake --preset fuzz
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target tests/fuzz/all
mkdir -p build/fuzz/crashes
broken=()
for target in build/fuzz/tests/fuzz/*_fuzz; do
    name=$(basename "$target" _fuzz)
    echo "== $name for $seconds s"
    mkdir -p "build/fuzz/corpus/$name"
    corpora=("build/fuzz/corpus/$name")
    if [ -d "tests/fuzz/corpus/$name" ]; then corpora+=("tests/fuzz/corpus/$name"); fi
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="build/fuzz/crashes/$name-" "${corpora[@]}" || broken+=("$name")
done
if [ ${#broken[@]} -gt 0 ]; then
    echo "fuzz: broken: ${broken[*]}; the inputs are in build/fuzz/crashes"
    exit 1
fi
echo "fuzz: clean"
