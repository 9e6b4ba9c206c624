#!/usr/bin/env bash
# bench_gpu.sh [ARGUMENTS OF python -m bench]: builds the op library where none is there, and runs the benchmark. LOWBIT_LIBRARY_DIR names
# libraries that were built elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
export LOWBIT_LIBRARY_DIR=${LOWBIT_LIBRARY_DIR:-$PWD/build/release}

scripts/setup.sh python
if [ "$(cat build/python-has-torch)" != ON ]; then
    echo "bench-gpu: needs torch 2.10 or newer, which $(cat build/python) has not" >&2
    exit 1
fi
if [ ! -e "$LOWBIT_LIBRARY_DIR/liblowbit_torch.so" ]; then
    scripts/setup.sh program
    cmake --preset release -DLOWBIT_TORCH=ON -DPython_EXECUTABLE="$(cat build/python)"
    cmake --build --preset release -j "${JOBS:-$(nproc)}" --target lowbit lowbit_torch
fi
exec "$(cat build/python)" -m bench "$@"
