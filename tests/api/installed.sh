#!/bin/sh
# installed.sh BUILD FOLDER MODELS CC CXX: installs libmegjit into FOLDER, and compiles and runs the examples with what lies
# there, as C11 and C++20, by CMake and by pkg-config (where there is one).
set -eu
build=$1 folder=$2 models=$3
export CC="$4" CXX="$5"
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
cmake --install "$build" --component library --prefix "$folder/prefix" >/dev/null
cmake -S "$here/installed" -B "$folder/build" -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
cmake --build "$folder/build" >/dev/null

expected="row 0: class 3 (10)
row 1: class 3 (73)"
check() {
    found=$(echo "1 2 3 4 5 6" | "$@" "$models/classify.dump")
    [ "$found" = "$expected" ] || { echo "$* printed '$found', not '$expected'" >&2; exit 1; }
}
check "$folder/build/classify_c"
check "$folder/build/classify_cpp"
if error=$("$folder/build/classify_cpp" "$folder/none.dump" 2>&1); then echo "a missing file was accepted" >&2; exit 1; fi
case $error in *"cannot read the model"*) ;; *) echo "a missing file gives '$error'" >&2; exit 1 ;; esac

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig"
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$here/../../examples/cpp/classify.c" $(pkg-config --define-variable=prefix="$folder/prefix" --cflags --libs megjit) \
        -Wl,-rpath,"$folder/prefix/lib" -o "$folder/by_pkg_config"
    check "$folder/by_pkg_config"
fi
