#!/bin/sh
# plain_cmake.sh: builds and tries the package without root, LLVM, MLIR and Halide: with a compiler, CMake and ninja, which
# see no other program, and an environment of Python that has nanobind, NumPy, oneDNN's package and what is imported at run
# time. CMake looks for nothing in the folders of the system, nor for MLIR where its files ask for LLVM by path.
# Kernels for the CPU would come from `python -m megengine cache import`; those of an emulated GPU are NVRTC's.
set -eu
cd "$(dirname "$0")/.."
folder=$PWD/build/plain_cmake
python=$folder/env/bin/python

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder/env"
# shellcheck disable=SC2046
tools/with_progress.sh plain-pip "$python" -m pip install --disable-pip-version-check --progress-bar off --no-compile \
    $("$python" tools/requirements.py build run | grep -v "halide\|scikit-build") "nvidia-cuda-nvrtc>=13.0,<14"

rm -rf "$folder/bin" "$folder/cache" "$folder/other"
mkdir "$folder/bin"
for tool in cc c++ as ld ar ranlib strip cmake ninja; do ln -s "$(command -v $tool)" "$folder/bin/"; done
alone="env -i HOME=$folder PATH=$folder/bin"
$alone cmake -G Ninja -S . -B "$folder/build" -DPython_EXECUTABLE="$python" \
    -DCMAKE_DISABLE_FIND_PACKAGE_MLIR=ON -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF >/dev/null
tools/with_progress.sh plain-build $alone cmake --build "$folder/build" --target all megjit_card -j "${JOBS:-$(nproc)}"
$alone cmake --install "$folder/build" --prefix "$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null

cat >"$folder/try.py" <<'END'
import numpy as np

import megengine as mge
from megengine import autodiff, functional as F, jit, optimizer

w = mge.Parameter(np.float32([[1, 2], [3, 4]]))
gm, opt = autodiff.GradManager().attach([w]), optimizer.SGD([w], lr=0.5)


@jit.trace(symbolic=True, opt_level=3)
def step(x, label):
    with gm:
        loss = F.nn.cross_entropy(x @ w, label)
        gm.backward(loss)
    opt.step().clear_grad()
    return loss


x, expected = np.float32([[1, -1]]), np.float32([[1, 2], [3, 4]])
for _ in range(3):
    y = x @ expected
    p = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
    np.testing.assert_allclose(step(mge.tensor(x), mge.tensor([1])).item(), -np.log(p[0, 1]), rtol=1e-5)
    expected -= 0.5 * x.T @ (p - np.float32([[0, 1]]))
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5)
print(*sorted({(kernel.backend, kernel.cached) for kernel in step.kernels()}))
END
try() {
    found=$(cd "$folder" && $alone MEGJIT_COMPILE=sync "$@" "$python" try.py 2>try.log) || { cat "$folder/try.log" >&2; exit 1; }
    [ "$found" = "$wanted" ] || { echo "plain_cmake: $* gives '$found', not '$wanted'" >&2; exit 1; }
}
on_card="MEGJIT_EMULATED_GPUS=1 MGE_DEFAULT_DEVICE=gpu0"
wanted="" try MEGJIT_CACHE_DIR="$folder/cache"
wanted="('NVRTC', False)" try MEGJIT_CACHE_DIR="$folder/cache" $on_card
$alone MEGJIT_CACHE_DIR="$folder/cache" "$python" -m megengine cache export "$folder/kernels" >/dev/null
$alone MEGJIT_CACHE_DIR="$folder/other" "$python" -m megengine cache import "$folder/kernels" >/dev/null
wanted="('NVRTC', True)" try MEGJIT_CACHE_DIR="$folder/other" $on_card MEGJIT_NVRTC=/nowhere
echo "plain_cmake: the core works without LLVM, Halide and root: op by op on the CPU, with NVRTC's or imported kernels on a GPU"
