#!/bin/sh
# installed.sh BUILD FOLDER MODELS CC CXX: installs libmegjit into FOLDER, and compiles and runs with what lies there, as C11
# and C++20, the examples and the programs of docs/cpp.md, by CMake and by pkg-config (where there is one).
set -eu
build=$1 folder=$2 models=$3
export CC="$4" CXX="$5" MEGJIT_CACHE_DIR=
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

if error=$("$folder/prefix/bin/megjit-run" "$models/classify.dump" 2>&1); then echo "no input was needed" >&2; exit 1; fi
case $error in *"input x is missing"*) ;; *) echo "megjit-run gives '$error'" >&2; exit 1 ;; esac

# The page's programs, built by the page's project.
page=$here/../../docs/cpp.md
mkdir "$folder/page"
for block in c:run.c cpp:run.cpp cmake:CMakeLists.txt; do
    sed -n "/^\`\`\`${block%:*}\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" "$page" >"$folder/page/${block#*:}"
done
cmake -S "$folder/page" -B "$folder/page/build" -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
cmake --build "$folder/page/build" >/dev/null
for program in run_c run_cpp; do
    found=$("$folder/page/build/$program" "$models/classify.dump")
    [ "$found" = "10 73" ] || { echo "$program of docs/cpp.md printed '$found', not '10 73'" >&2; exit 1; }
done

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig"
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$here/../../examples/cpp/classify.c" $(pkg-config --define-variable=prefix="$folder/prefix" --cflags --libs megjit) \
        -Wl,-rpath,"$folder/prefix/lib" -o "$folder/by_pkg_config"
    check "$folder/by_pkg_config"
fi
