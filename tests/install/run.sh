#!/usr/bin/env bash
# run.sh BUILD: installs that build tree into a temporary prefix and uses the result as an outsider would.
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Moved after the install: nothing in it may remember where it was put.
cmake --install "$build" --prefix "$work/first" >/dev/null
prefix=$work/moved
mv "$work/first" "$prefix"

echo "== find_package(lowbit)"
cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/build/uses_c"
"$work/build/uses_cpp"

lib=$(dirname "$(find "$prefix" -name 'liblowbit.*' -print -quit)")
export LD_LIBRARY_PATH=$lib

echo "== pkg-config"
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$lib/pkgconfig
    # shellcheck disable=SC2046 # the flags are words
    cc "$source/main.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs lowbit)
    "$work/by_pkg_config"
else
    echo "pkg-config is not installed here: lowbit.pc not tried"
fi

if [ -e "$lib/liblowbit.so" ]; then
    echo "== exported symbols"
    names=$(nm -D --defined-only "$lib/liblowbit.so" | awk '{print $NF}')
    strangers=$(grep -v '^lowbit_' <<<"$names" || true)
    if [ -n "$strangers" ]; then
        printf 'liblowbit.so exports more than lowbit_*:\n%s\n' "$strangers"
        exit 1
    fi
    echo "$(wc -l <<<"$names") symbols, all lowbit_*"
fi

if [ -x "$prefix/bin/lowbit" ]; then
    echo "== program"
    "$prefix/bin/lowbit" --version
fi
