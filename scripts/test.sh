#!/usr/bin/env bash
# Builds and runs every test: release, Python, address and undefined behaviour sanitizers, thread sanitizer. Every stage runs even when
# an earlier one failed; only what a later stage stands on (the set-up, the release build) stops the run. scripts/summary.py sums up.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
record=$PWD/build/test-results
rm -rf "$record" build/{release,asan,tsan}/test-results
mkdir -p "$record"

# One line of stages.tsv is: name, seconds, exit status or "skipped", where the results lie (or -), a note.
note_stage() { (IFS=$'\t' && echo "$*") >>"$record/stages.tsv"; }

# stage NAME RESULTS COMMAND...
stage() {
    local name=$1 results=$2 start=$SECONDS status=0
    shift 2
    echo "== $name"
    "$@" || status=$?
    echo "== $name: $((SECONDS - start)) s"
    note_stage "$name" $((SECONDS - start)) $status "$results" ""
    return $status
}

stop() {
    echo "make test: $1 failed, nothing was tested"
    exit 1
}

build() {
    local preset=$1
    shift
    cmake --preset "$preset" "${configure[@]}" && cmake --build --preset "$preset" -j "$jobs" "$@"
}

configure=()

# The PyTorch ops join the release build where the tests' Python has torch.
build_torch() {
    local configure=(-DLOWBIT_TORCH="$(cat build/python-has-torch)" -DPython_EXECUTABLE="$(cat build/python)")
    build release
}

finish_python_setup() {
    local status=0
    wait "$python_setup" || status=$?
    cat "$record/python.log"
    return $status
}

run_ctest() {
    local preset=$1
    shift
    "${fixed_addresses[@]}" ctest --preset "$preset" -j "$jobs" --no-tests=error --output-junit "$PWD/build/$preset/test-results/ctest.xml" "$@"
}

finish_pytest() {
    local status=0
    wait "$python_tests" || status=$?
    cat "$record/pytest.log"
    return $status
}

# With cores to spare the files run side by side, each in a process of its own; its output appears when it has ended.
run_pytest() {
    local python at_once=$((jobs / 2))
    python=$(cat build/python)
    mkdir -p "$record/pytest"
    if ((at_once < 2)); then
        "$python" -m pytest tests/python -q -ra --junitxml="$record/pytest/all.xml"
    else
        ls -S tests/python/test_*.py | xargs -P "$at_once" -I{} bash -c \
            'said=$("$0" -m pytest "{}" -q -ra --junitxml="$1/$(basename {} .py).xml" 2>&1); status=$?; echo "$said"; [ $status = 0 ] || [ $status = 5 ]' \
            "$python" "$record/pytest"
    fi
}

# The sanitizers of older compilers do not start under the address randomisation of newer kernels.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi

# sanitized PRESET SANITIZERS LABEL PROGRAM: builds the test program in that preset and runs the tests of the label.
sanitized() {
    local preset=$1 sanitizers=$2 label=$3 program=$4
    if ! echo 'int main() {}' | ${CXX:-c++} "-fsanitize=$sanitizers" -x c++ - -o "$record/probe" || ! "${fixed_addresses[@]}" "$record/probe"; then
        note_stage "$preset" 0 skipped - "this compiler or machine cannot run programs built with -fsanitize=$sanitizers"
    elif stage "$preset: build" - build "$preset" --target "$program"; then
        stage "$preset" "build/$preset/test-results" run_ctest "$preset" -L "^$label\$" || true
    fi
}

stage "set up" - scripts/setup.sh build || stop "the set-up"
# Python's packages come over the network while the compiler works.
scripts/setup.sh python >"$record/python.log" 2>&1 &
python_setup=$!
stage "release: build" - build release || stop "the release build"
stage "set up Python" - finish_python_setup || stop "the set-up of Python"
stage "release: PyTorch ops" - build_torch || stop "the build of the PyTorch ops"
report_library() {
    local copy=$record/library
    cp -L build/release/liblowbit.so "$copy" && strip "$copy" && echo "== release: liblowbit.so takes $(($(stat -c %s "$copy") / 1000000)) MB, stripped"
    rm -f "$copy"
}
report_library || true
start_pytest() {
    run_pytest >"$record/pytest.log" 2>&1 &
    python_tests=$!
}
# With cores to spare everything runs beside everything else.
many_cores=$((jobs >= 8))
if ((many_cores)); then start_pytest; fi
stage "release" build/release/test-results run_ctest release -LE '^threads$' || true
# On few cores Python's tests keep one busy, the builds of the sanitizers the rest.
if ((!many_cores)); then start_pytest; fi
sanitized asan address,undefined unit lowbit_tests
sanitized tsan thread threads lowbit_thread_tests
stage "python" "$record/pytest" finish_pytest || true

"$(cat build/python)" scripts/summary.py "$record/stages.tsv"
