#!/bin/sh
# installed.sh BUILD FOLDER MODELS CC CXX [PYTHON]: compiles and runs the examples with an installed libmegjit, as C11 and C++20, by CMake,
# by pkg-config (where there is one) and by a bare compiler. The library is that of PYTHON's package; without PYTHON it is installed
# into FOLDER. The programs of docs/cpp.md are built as the page says, by tests/python/test_documents.py.
set -eu
build=$1 folder=$2 models=$3
export CC="$4" CXX="$5" MEGJIT_CACHE_DIR=
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder" && mkdir "$folder"
if [ "${6-}" ]; then
    library=$("$6" -m megengine config --lib-dir)
    cmake_dir=$("$6" -m megengine config --cmake-dir) pkgconfig=$("$6" -m megengine config --pkg-config-dir)
    cflags=$("$6" -m megengine config --cflags) libs=$("$6" -m megengine config --libs)
    run=$(dirname "$6")/megjit-run
else
    cmake --install "$build" --component library --prefix "$folder/prefix" >/dev/null
    library=$folder/prefix/lib cmake_dir=$folder/prefix/lib/cmake/megjit pkgconfig=$folder/prefix/lib/pkgconfig
    cflags=-I$folder/prefix/include libs="-L$folder/prefix/lib -lmegjit -Wl,-rpath,$folder/prefix/lib -Wl,--allow-shlib-undefined"
    run=$folder/prefix/bin/megjit-run
fi
expected="row 0: class 3 (10)
row 1: class 3 (73)"
check() {
    found=$(echo "1 2 3 4 5 6" | "$@" "$models/classify.dump")
    [ "$found" = "$expected" ] || { echo "$* printed '$found', not '$expected'" >&2; exit 1; }
}
examples() {  # FOLDER: the project outside of the tree, by CC and CXX
    cmake -S "$here/installed" -B "$1" -Dmegjit_DIR="$cmake_dir" >/dev/null
    cmake --build "$1" >/dev/null
    check "$1/classify_c"
    check "$1/classify_cpp"
    found=$(printf '1 2 3 4 5 6\n6 5 4 3 2 1\n-9 0 0 0 0 0\n' | "$1/serve" "$models/classify.dump" 3 | tr '\n' ' ')
    [ "$found" = "7 3 7 " ] || { echo "serve printed '$found'" >&2; exit 1; }
}
examples "$folder/build"
if command -v clang >/dev/null && command -v clang++ >/dev/null; then (export CC=clang CXX=clang++; examples "$folder/build_clang"); fi
if error=$("$folder/build/classify_cpp" "$folder/none.dump" 2>&1); then echo "a missing file was accepted" >&2; exit 1; fi
case $error in *"cannot read the model"*) ;; *) echo "a missing file gives '$error'" >&2; exit 1 ;; esac

if error=$("$run" "$models/classify.dump" 2>&1); then echo "no input was needed" >&2; exit 1; fi
case $error in *"input x is missing"*) ;; *) echo "megjit-run gives '$error'" >&2; exit 1 ;; esac

# Plug-ins are found beside the library, and libHalide where the build has found it, or in the package beside ours. A model is compiled
# before its input is missed.
halide() { MGB_JIT_BACKEND=HALIDE MEGJIT_COMPILE=sync "$@" "$run" "$models/chain.dump" 2>&1 | head -n 1; }
if [ -e "$library/libmegjit_halide.so" ]; then
    case $(halide env) in "input x is missing"*) ;; *) echo "with Halide: $(halide env)" >&2; exit 1 ;; esac
    case $(halide env MEGJIT_PLUGIN_DIR=/nowhere) in *HALIDE*) ;; *) echo "nobody misses Halide" >&2; exit 1 ;; esac
fi

by_hand() {  # NAME OPTION...
    made=$folder/$1
    shift
    "$CC" -std=c11 "$here/../../examples/cpp/classify.c" "$@" -o "$made"
    check "$made"
}
# shellcheck disable=SC2086
by_hand by_compiler $cflags $libs
# shellcheck disable=SC2046
if command -v pkg-config >/dev/null; then
    by_hand by_pkg_config $(PKG_CONFIG_PATH="$pkgconfig" pkg-config --cflags --libs megjit) -Wl,-rpath,"$library"
fi
