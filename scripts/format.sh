#!/usr/bin/env bash
# format.sh: applies clang-format to every C, C++ and CUDA file; format.sh --check: only says which differ.
set -euo pipefail
cd "$(dirname "$0")/.."
action=(-i)
if [ "${1:-}" = --check ]; then action=(--dry-run -Werror); fi
find include src torch tools tests examples bench -type f \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) \
    -print0 | xargs -0 -r clang-format "${action[@]}"
