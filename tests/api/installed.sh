#!/bin/sh
# installed.sh BUILD FOLDER MODELS CC CXX [PYTHON]: installs libmegjit into FOLDER, and compiles and runs with what lies there, as C11
# and C++20, the examples and the programs of docs/cpp.md, by CMake and by pkg-config (where there is one). The page's programs run on
# what its Python writes, where the package is installed.
set -eu
build=$1 folder=$2 models=$3
export CC="$4" CXX="$5" MEGJIT_CACHE_DIR=
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
cmake --install "$build" --component library --prefix "$folder/prefix" >/dev/null
expected="row 0: class 3 (10)
row 1: class 3 (73)"
check() {
    found=$(echo "1 2 3 4 5 6" | "$@" "$models/classify.dump")
    [ "$found" = "$expected" ] || { echo "$* printed '$found', not '$expected'" >&2; exit 1; }
}
examples() {  # FOLDER: the project outside of the tree, by CC and CXX
    cmake -S "$here/installed" -B "$1" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
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

if error=$("$folder/prefix/bin/megjit-run" "$models/classify.dump" 2>&1); then echo "no input was needed" >&2; exit 1; fi
case $error in *"input x is missing"*) ;; *) echo "megjit-run gives '$error'" >&2; exit 1 ;; esac

# Plug-ins are found beside the library, and libHalide where the build has found it. A model is compiled before its input is missed.
halide() { MGB_JIT_BACKEND=HALIDE MEGJIT_COMPILE=sync "$@" "$folder/prefix/bin/megjit-run" "$models/chain.dump" 2>&1 | head -n 1; }
if [ -e "$folder/prefix/lib/libmegjit_halide.so" ]; then
    case $(halide env) in "input x is missing"*) ;; *) echo "with Halide: $(halide env)" >&2; exit 1 ;; esac
    case $(halide env MEGJIT_PLUGIN_DIR=/nowhere) in *HALIDE*) ;; *) echo "nobody misses Halide" >&2; exit 1 ;; esac
fi

# The page's programs, built by the page's project.
page=$here/../../docs/cpp.md
mkdir "$folder/page"
block() {  # KIND FIRST: the block of that kind whose first line matches
    awk -v kind="\`\`\`$1" -v first="$2" '
        $0 == "```" { inside = 0 } inside == 2 { print } inside == 1 { inside = ($0 ~ first) ? 2 : 0; if (inside) print }
        $0 == kind { inside = 1 }' "$page"
}
block c '^#include' >"$folder/page/run.c"
block cpp '^// file: run.cpp' >"$folder/page/run.cpp"
block cpp '^// file: train.cpp' >"$folder/page/train.cpp"
block cpp '^// file: over.cpp' >"$folder/page/over.cpp"
block cmake '^cmake' >"$folder/page/CMakeLists.txt"
block python '.' >"$folder/page/page.py"
cmake -S "$folder/page" -B "$folder/page/build" -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
cmake --build "$folder/page/build" >/dev/null
expect() {
    wanted=$1
    shift
    found=$("$@")
    [ "$found" = "$wanted" ] || { echo "$* of docs/cpp.md printed '$found', not '$wanted'" >&2; exit 1; }
}
for program in run_c run_cpp; do expect "10 73" "$folder/page/build/$program" "$models/classify.dump"; done
if [ "${6-}" ] && "$6" -c "import megengine" 2>/dev/null; then
    cd "$folder/page"
    "$6" page.py >/dev/null
    for program in run_c run_cpp; do expect "$(build/run_c)" "build/$program"; done
    expect "3 12" build/train
    expect "3 12" build/train trained.dump
    expect "6 4 3" build/over
fi

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig"
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$here/../../examples/cpp/classify.c" $(pkg-config --define-variable=prefix="$folder/prefix" --cflags --libs megjit) \
        -Wl,-rpath,"$folder/prefix/lib" -o "$folder/by_pkg_config"
    check "$folder/by_pkg_config"
fi
