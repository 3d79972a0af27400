#!/bin/bash
# gpu_check.sh [--out DIR] [--seconds N] [STEP...]: what only a GPU can tell, in ten minutes or N seconds, from a copy of this tree; a
# report of files in DIR (build/gpu_report), as they come, and one archive of them. Without STEP all of: about rungs bits tests programs
# figures memory sanitizer; those for which no time is left are left out.
# It takes the package of .venv, else what `gpu_check.sh pack [halide]` left in build/gpu_kit.tar.xz, for a machine that reaches no
# registry and has Python 3.12 or later with NumPy, ml_dtypes, tqdm, pytest, pytest-xdist, hypothesis, SciPy, scikit-learn,
# CUDA 13's libraries and, for ctest, CMake; else it builds. PyTorch and JAX are compared with where Python has them.
# MEGJIT_EMULATED_GPUS=1: the same on an emulated card, with small sizes.
set -uo pipefail
cd "$(dirname "$0")/.."
kit=build/gpu_kit report=$PWD/build/gpu_report whole=600

# The wheel with the stable ABI, the libraries that it asks for, the programs of ctest -L gpu: 28 MB. With Halide's library,
# by `pack halide`, 73 MB.
pack() {
    set -e
    make build-tests wheels
    tests=$(ls -dt build/cp3*/tests | head -n 1)
    rm -rf $kit && mkdir -p $kit/lib $kit/tests
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-compile --target $kit/site \
        --python-version 3.12 --only-binary=:all: dist/megjit-*-abi3-*.whl
    cp "$tests/gpu_tests" "$tests/graph_fuzz" $kit/tests/
    cp "$tests"/card/emulator/libmegjit_card.so "$tests"/card/libraries/*.so $kit/site/megengine/
    # shellcheck disable=SC2046
    cp -L $(ldd "$tests/gpu_tests" ${1:+.venv/lib/python3*/site-packages/megengine/libmegjit_halide.so} |
        awk -v ours="$PWD/.venv/" 'index($3, ours) == 1 {print $3}' | sort -u) $kit/lib/
    bits_of_emulator "$tests" $kit/bits.json .venv/bin/python
    strip $kit/lib/*.so* $kit/tests/gpu_tests $kit/tests/graph_fuzz
    sed "/^subdirs/d; s#$PWD/$tests#@tests@#g" "$tests/CTestTestfile.cmake" >$kit/tests/commands
    find "$PWD/${tests%/tests}" -name 'libmegjit_mlir.so' -o -name 'libmegjit_halide.so' >$kit/tests/compilers
    XZ_OPT=-T0 tar -C build -cJf $kit.tar.xz gpu_kit
    ls -l $kit.tar.xz
}

# What kernels that promise bits compute on the emulated card.
bits_of_emulator() {
    MEGJIT_EMULATED_GPUS=1 MEGJIT_CUDA_DRIVER=$PWD/$1/card/emulator/libmegjit_card.so "$3" tools/gpu_bits.py write "$2"
}

# The programs were told at build time where the compilers of kernels lie.
unpack() {
    [ -d $kit ] || tar -C build -xJf $kit.tar.xz
    export PYTHONPATH=$PWD/$kit/site LD_LIBRARY_PATH=$PWD/$kit/lib:$PWD/$kit/site/megjit.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    sed "s#@tests@#$PWD/$kit/tests#g" $kit/tests/commands >$kit/tests/CTestTestfile.cmake
    while read -r plugin; do
        [ -e "$plugin" ] || { mkdir -p "${plugin%/*}" && ln -s "$PWD/$kit/site/megengine/${plugin##*/}" "$plugin"; }
    done <$kit/tests/compilers
}

choose_package() {
    python=$PWD/.venv/bin/python # steps change their folder
    if [ -e $kit.tar.xz ] && ! "$python" -c 'import megengine' 2>/dev/null; then
        python=${PYTHON:-python3} tests=$kit/tests bits=$kit/bits.json
        unpack
    else
        { make build-tests && { [ -z "${MEGJIT_EMULATED_GPUS:-}" ] || make card; }; } >"$report/build.txt" 2>&1 ||
            { tail -n 5 "$report/build.txt" >&2; exit 1; }
        tests=$(ls -dt build/cp3*/tests | head -n 1) bits=$report/bits.json
        [ ! -e "$tests/card/emulator/libmegjit_card.so" ] || bits_of_emulator "$tests" "$bits" "$python" >>"$report/build.txt" 2>&1
    fi
    python=$(command -v "$python")
    if [ -n "${MEGJIT_EMULATED_GPUS:-}" ]; then # the programs do not know the package's folder
        package=$("$python" -c 'import megengine; print(megengine.__path__[0])')
        export MEGJIT_CUDA_DRIVER=$package/libmegjit_card.so MEGJIT_CUDNN=$package/libmegjit_card_cudnn.so \
            MEGJIT_CUBLASLT=$package/libmegjit_card_cublaslt.so
    fi
    "$python" -c 'import megengine as mge; mge.tensor(0, device="gpu0")' 2>"$report/build.txt" ||
        { grep -A 9 "Error:" "$report/build.txt" >&2; exit 1; }
}

about() {
    nvidia-smi
    "$python" -m megengine info
    "$python" -m pip list 2>/dev/null | grep -iE '^(megjit|numpy|torch|triton|jax|nvidia-)'
    true
}
bits() { "$python" tools/gpu_bits.py compare "$bits"; }
rungs() { MEGJIT_COMPILE=sync "$python" tools/gpu_rungs.py; }
tests() { (cd tests/python && "$python" -m pytest -p no:cacheprovider -p no:benchmark -n "$processes" -m gpu .); }
programs() { ctest --test-dir "$tests" -L gpu --output-on-failure -j "$processes"; }
sanitizer() {
    compute-sanitizer --version >/dev/null 2>&1 || { echo "left out: there is no compute-sanitizer"; return 0; }
    (cd tests/python && compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$python" -m pytest -p no:cacheprovider -p no:benchmark -m gpu test_gpu.py)
}
figures() { "$python" benchmarks/harness.py --device gpu --quick --ours "$python" --json "$report/figures.json" --log "$report/figures.log"; }
memory() { "$python" benchmarks/memory_on_card.py; }

failed=0
# step NAME SECONDS: its output is a file of the report; what counts is its last line.
step() {
    begin=$SECONDS
    left=$((patience * whole - SECONDS))
    if [ $left -lt 10 ]; then
        echo "$1: left out, the time is up" | tee -a "$report/summary.txt"
        return
    fi
    export -f "$1"
    timeout -k 10 "$(($2 < left ? $2 : left))" bash -c "$1" >"$report/$1.txt" 2>&1
    code=$?
    [ $code = 0 ] || failed=1
    echo "$1: status $code after $((SECONDS - begin)) s: $(grep -v '^ *$' "$report/$1.txt" | tail -n 1)" | tee -a "$report/summary.txt"
}

[ "${1:-}" != pack ] || { pack "${2:-}"; exit; }
while [ $# -ge 2 ]; do
    case $1 in
        --out) report=$(realpath -m "$2") ;;
        --seconds) whole=$2 ;;
        *) break ;;
    esac
    shift 2
done
mkdir -p "$report" && rm -f "$report/summary.txt"
choose_package
processes=$(($(nproc) < 8 ? $(nproc) : 8))
export python tests processes report bits
patience=$((${MEGJIT_EMULATED_GPUS:-0} > 0 ? 10 : 1))
declare -A seconds=([about]=60 [rungs]=60 [bits]=60 [tests]=150 [programs]=120 [figures]=240 [memory]=60 [sanitizer]=60)
[ $# != 0 ] || set -- about rungs bits tests programs figures memory sanitizer
for name; do
    [ -n "${seconds[$name]:-}" ] || { echo "gpu_check: no step $name; there are ${!seconds[*]}" >&2; exit 2; }
    step "$name" "$((patience * ${seconds[$name]}))"
done
tar -C "$report" --exclude report.tar.gz -czf "$report/report.tar.gz" .
exit $failed
