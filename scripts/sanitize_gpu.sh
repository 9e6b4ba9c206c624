#!/usr/bin/env bash
# Every CUDA kernel over the verification table under compute-sanitizer. ARGS: the tools to run (default: all four).
# A checked run is some hundred times slower: every STRIDE-th case is run (default 7).
set -euo pipefail
cd "$(dirname "$0")/.."
program=${LOWBIT_PROGRAM:-build/release/tools/lowbit}
[ -x "$program" ] || { cmake --preset release && cmake --build --preset release -j "$(nproc)" --target lowbit_program; }
command -v compute-sanitizer >/dev/null || { echo "sanitize-gpu: compute-sanitizer is not on the PATH; it comes with the CUDA toolkit" >&2; exit 1; }
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck synccheck initcheck)
status=0
for tool in "${tools[@]}"; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" verify --device cuda --stride "${STRIDE:-7}" || status=$?
done
exit $status
