#!/usr/bin/env bash
# setup.sh WHAT: brings what a make target needs onto this machine, and says nothing when it is all there.
#   program  what the lowbit program is built with
#   build    the same and GoogleTest; goes on without the program's libraries where they cannot be had
#   lint     the same and the linters
#   fuzz     clang with its fuzzer
#   python   an interpreter for tests/python; its path is left in build/python, and whether it has torch (ON, OFF) in build/python-has-torch
# As root it installs Debian packages; as anyone else it prints the command and stops. OFFLINE=1: it never installs anything.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
mkdir -p build
log=build/setup.log

say() { echo "setup: $*" >&2; }
have_tool() { command -v "$1" >/dev/null; }

# Asks the compiler, so that a library outside /usr/include counts.
have_header() {
    [ -e "/usr/include/$1" ] && return
    have_tool c++ && printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | c++ -E -x c++ - >/dev/null 2>&1
}

have_fuzzer() {
    have_tool clang++ || return
    printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer,address -x c++ - -o build/fuzzer-probe >/dev/null 2>&1 && rm -f build/fuzzer-probe
}

# can_install: whether this machine and user may install at all; says why not.
can_install() {
    if [ -n "${OFFLINE:-}" ]; then
        say "OFFLINE is set, so nothing is installed"
        return 1
    elif ! have_tool apt-get; then
        say "this machine has no apt-get: install by hand what these Debian packages hold"
        return 1
    elif [ "$(id -u)" != 0 ]; then
        say "not root: please run   sudo apt-get install -y --no-install-recommends $*"
        say "(or set OFFLINE=1 to go on without, where that is possible)"
        exit 1
    fi
}

# install_packages NAME...: false, with a sentence, when they could not be installed.
install_packages() {
    say "missing here: $*"
    can_install "$@" || return 1
    say "installing with apt-get (log: $log)"
    local options=(-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120)
    export DEBIAN_FRONTEND=noninteractive
    timeout 180 apt-get "${options[@]}" update >"$log" 2>&1 || true
    if ! apt-get "${options[@]}" install -y --no-install-recommends "$@" >>"$log" 2>&1; then
        say "apt-get could not install them; is there a network? Its last words:"
        tail -n 3 "$log" >&2
        return 1
    fi
}

required=()
wished=()
compiler() {
    have_tool c++ || required+=(g++)
    have_tool cmake || required+=(cmake)
    have_tool ninja || required+=(ninja-build)
}
program_libraries() {
    have_header CLI/CLI.hpp || echo libcli11-dev
    have_header nlohmann/json.hpp || echo nlohmann-json3-dev
}
bring() {
    if [ ${#required[@]} -gt 0 ] && ! install_packages "${required[@]}"; then
        say "cannot go on without: ${required[*]}"
        exit 1
    fi
    if [ ${#wished[@]} -gt 0 ] && ! install_packages "${wished[@]}"; then
        say "going on without ${wished[*]}: the lowbit program is left out"
    fi
}

imports() { "$1" -c "import $2" >/dev/null 2>&1; }
needed_modules="pytest, numpy, ml_dtypes, safetensors"
wished_modules="gguf, hypothesis"

# Without importing it, which takes seconds.
has_torch() {
    "$1" -c 'import importlib.metadata, re
version = importlib.metadata.version("torch")
raise SystemExit(tuple(map(int, re.findall(r"[0-9]+", version)[:2])) < (2, 10))' >/dev/null 2>&1
}

# add_torch: torch and what builds the wheel, into .venv. Where there is no GPU, the CPU build is preferred: it is a tenth of the size.
add_torch() {
    if [ -n "${OFFLINE:-}" ]; then return 1; fi
    say "getting torch for the tests of the PyTorch package (log: $log)"
    local places=()
    have_tool nvidia-smi || places=(--extra-index-url https://download.pytorch.org/whl/cpu)
    .venv/bin/python -m pip install --disable-pip-version-check --timeout 60 --retries 0 "${places[@]}" -r tests/python/requirements-torch.txt >>"$log" 2>&1
}

# make_venv [beside]: .venv with the requirements in it; a broken one is not left behind. "beside": what python3 has already (torch, say)
# stays visible, and only the rest is fetched.
make_venv() {
    if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
        required=(python3-venv)
        bring
    fi
    say "making .venv from tests/python/requirements.txt (log: $log)"
    if python3 -m venv --clear .venv >"$log" 2>&1 &&
        { [ "${1:-}" != beside ] || python3 -c 'import site; print(*site.getsitepackages(), sep="\n")' >"$(echo .venv/lib/python3*/site-packages)/beside.pth"; } &&
        .venv/bin/python -m pip install --disable-pip-version-check --timeout 20 --retries 1 -r tests/python/requirements.txt >>"$log" 2>&1; then
        cp tests/python/requirements.txt .venv/requirements.txt
    else
        rm -rf .venv
        return 1
    fi
}

# python_with_torch PATH: the interpreter, with torch in it where torch can be had.
python_with_torch() {
    local python=$1
    if has_torch "$python"; then
        echo "$python"
    elif [ "$python" != "$PWD/.venv/bin/python" ] && { [ -n "${OFFLINE:-}" ] || ! make_venv beside; }; then
        say "going on without torch: the tests of the PyTorch package skip"
        echo "$python"
    else
        add_torch || say "going on without torch, which could not be installed from PyPI: the tests of the PyTorch package skip"
        echo "$PWD/.venv/bin/python"
    fi
}

python_interpreter() {
    if ! have_tool python3; then
        required=(python3 python3-venv)
        bring
    fi
    local python
    python=$(command -v python3)
    if imports "$python" "$needed_modules, $wished_modules"; then
        echo "$python"
    elif cmp -s tests/python/requirements.txt .venv/requirements.txt && imports .venv/bin/python "$needed_modules"; then
        echo "$PWD/.venv/bin/python"
    elif imports "$python" "$needed_modules"; then
        if [ -z "${OFFLINE:-}" ] && make_venv beside; then
            echo "$PWD/.venv/bin/python"
        else
            say "going on without all of $wished_modules: PyPI is not reachable; tests that need them skip"
            echo "$python"
        fi
    elif [ -n "${OFFLINE:-}" ]; then
        say "python3 lacks some of $needed_modules, and OFFLINE is set"
        return 1
    elif make_venv; then
        echo "$PWD/.venv/bin/python"
    else
        say "python3 lacks some of $needed_modules, and they could not be installed from PyPI; is there a network? pip's last words:"
        tail -n 3 "$log" >&2
        return 1
    fi
}

case $what in
program)
    compiler
    mapfile -t -O "${#required[@]}" required < <(program_libraries)
    bring
    ;;
build | lint)
    compiler
    have_header gtest/gtest.h || required+=(libgtest-dev)
    if [ "$what" = lint ]; then
        for tool in clang-format clang-tidy cppcheck; do have_tool $tool || required+=("$tool"); done
    fi
    mapfile -t wished < <(program_libraries)
    bring
    ;;
fuzz)
    compiler
    have_fuzzer || required+=(clang libclang-rt-dev)
    bring
    ;;
python)
    interpreter=$(python_interpreter)
    python_with_torch "$interpreter" >build/python
    if has_torch "$(cat build/python)"; then echo ON; else echo OFF; fi >build/python-has-torch
    ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
