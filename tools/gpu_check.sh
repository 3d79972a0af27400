#!/bin/bash
# gpu_check.sh [--out DIR] [--again] [PART...]: what only a GPU can tell, in 560 seconds, from a copy of this tree; results in DIR
# (build/gpu_report), seven small files at most, written as they come. Without PART all of: smoke micro products kernels peers ncu bits
# tests door; products before kernels, which find in the cache what was chosen there. Each runs alone and in any order; one that DIR has results of is not run again without --again, and one that was cut off
# goes on where it stopped, another day too: copy DIR to the machine.
# It takes the package of .venv, else what `gpu_check.sh pack [halide]` left in build/gpu_kit.tar.xz, for a machine that reaches no
# registry and has Python 3.12 or later with NumPy, ml_dtypes, tqdm, pytest, pytest-xdist, hypothesis, SciPy, scikit-learn and CUDA 13's
# libraries; else it builds. torch.compile is compared with where Python has torch.
# MEGJIT_EMULATED_GPUS=1: the same on an emulated card, with small sizes.
set -uo pipefail
cd "$(dirname "$0")/.."
kit=build/gpu_kit report=$PWD/build/gpu_report again=
order=(smoke micro products kernels peers ncu bits tests door)
declare -A seconds=([smoke]=45 [micro]=60 [products]=90 [kernels]=90 [peers]=120 [ncu]=40 [bits]=25 [tests]=60 [door]=30)

# The wheel with the stable ABI, the emulated card and what it computed. With Halide's library, by `pack halide`, 45 MB more.
pack() {
    set -e
    make card wheels
    package=$(.venv/bin/python -c 'import megengine; print(megengine.__path__[0])')
    rm -rf $kit && mkdir -p $kit/lib
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-compile --target $kit/site \
        --python-version 3.12 --only-binary=:all: dist/megjit-*-abi3-*.whl
    cp "$package"/libmegjit_card*.so $kit/site/megengine/
    [ -z "${1:-}" ] || cp -L "$(ldd "$package/libmegjit_halide.so" | awk '/libHalide/ {print $3}')" $kit/lib/
    MEGJIT_EMULATED_GPUS=1 .venv/bin/python tools/card/bits.py write $kit/bits.json
    strip $kit/site/megengine/libmegjit_card*.so
    XZ_OPT=-T0 tar -C build -cJf $kit.tar.xz gpu_kit
    ls -l $kit.tar.xz
}

choose_package() {
    python=$PWD/.venv/bin/python # parts change their folder
    if "$python" -c 'import megengine' 2>/dev/null; then
        :
    elif [ -e $kit.tar.xz ]; then
        [ -d $kit ] || tar -C build -xJf $kit.tar.xz
        python=$(command -v "${PYTHON:-python3}")
        export GPU_BITS=$PWD/$kit/bits.json PYTHONPATH=$PWD/$kit/site
        export LD_LIBRARY_PATH=$PWD/$kit/lib:$PWD/$kit/site/megjit.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    else
        make card >&2 || exit 1
    fi
    fault=$("$python" -c 'import megengine as mge; mge.tensor(0, device="gpu0")' 2>&1) ||
        { grep -A 9 "Error:" <<<"$fault" >&2; exit 1; }
    # Without a kit the emulated card computes them here, if it is there.
    package=$("$python" -c 'import megengine; print(megengine.__path__[0])')
    if [ -z "${GPU_BITS:-}" ] && [[ " $* " = *" bits "* ]] && [ -e "$package/libmegjit_card.so" ]; then
        export GPU_BITS=$PWD/build/gpu_bits.json
        [ "$GPU_BITS" -nt "$package/libmegjit_card.so" ] || MEGJIT_EMULATED_GPUS=1 "$python" tools/card/bits.py write "$GPU_BITS"
    fi
}

failed=0
part() {
    limit=$((patience * ${seconds[$1]}))
    timeout -k 2 $limit "$python" "tools/card/$1.py" --out "$report" --seconds $((limit - 3)) $again >>"$report/log.txt" 2>&1
    code=$?
    [ $code = 0 ] || failed=1
    [ $code -lt 124 ] || echo "$1: status $code" >>"$report/log.txt"
    tail -n 1 "$report/log.txt"
}

[ "${1:-}" != pack ] || { pack "${2:-}"; exit; }
while [ $# -ge 1 ]; do
    case $1 in
        --out) report=$(realpath -m "$2") && shift ;;
        --again) again=--again ;;
        *) break ;;
    esac
    shift
done
[ $# != 0 ] || set -- "${order[@]}"
for name; do
    [ -n "${seconds[$name]:-}" ] || { echo "gpu_check: no part $name; there are ${order[*]}" >&2; exit 2; }
done
mkdir -p "$report"
choose_package "$@"
patience=$((${MEGJIT_EMULATED_GPUS:-0} > 0 ? 10 : 1))
for name; do part "$name"; done
(cd "$report" && tar -czf report.tar.gz -- *.json *.txt)
exit $failed
