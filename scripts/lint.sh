#!/usr/bin/env bash
# Every linter over every file it understands; each runs even when an earlier one complained.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
jobs=${JOBS:-$(nproc)}
complaints=()

echo "== clang-format"
scripts/format.sh --check || complaints+=(clang-format)

echo "== clang-tidy"
if cmake --preset release >build/configure.log; then
    # Kernels are left to the compilers: intrinsics and device code are mostly false alarms here.
    find src tools -path src/cpu -prune -o -path src/cuda -prune -o -name '*.cpp' -print0 |
        xargs -0 -r -n 1 -P "$jobs" clang-tidy -p build/release --quiet --extra-arg=-Wno-unknown-warning-option 2>&1 |
        sed -E '/^[0-9]+ warnings? (generated|treated)/d' || complaints+=(clang-tidy)
else
    cat build/configure.log
    complaints+=(configure)
fi

echo "== cppcheck"
cppcheck -j "$jobs" --quiet --error-exitcode=1 --std=c++20 --enable=warning,performance,portability --inline-suppr \
    --suppressions-list=.cppcheck-suppressions -I include -I src src tools || complaints+=(cppcheck)

if [ ${#complaints[@]} -gt 0 ]; then
    echo "lint: complaints from ${complaints[*]}"
    exit 1
fi
echo "lint: clean"
