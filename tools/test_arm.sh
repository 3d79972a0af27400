#!/bin/sh
# test_arm.sh: builds for AArch64 on x86-64, and runs under qemu the C++ tests of runtime, memory,
# codegen and jit and of the kernels, those of the kernel compiler, and some of the Python tests. What
# starts other programs is left out: qemu runs one program, and those that it starts must run without.
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)

tools/setup.sh test g++-aarch64-linux-gnu qemu-user
tools/arm_root.sh
arm=$PWD/build/arm
# Without oneDNN and Halide, which have no wheels there.
cmake -G Ninja -S . -B "$arm/build" -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/arm.cmake" -DMEGJIT_WITH_HALIDE=OFF \
    -DMEGJIT_TESTS=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >build/logs/arm-cmake.log
suites="runtime_tests memory_tests codegen_tests jit_tests backends_tests mlir_tests"
# shellcheck disable=SC2086
tools/with_progress.sh arm cmake --build "$arm/build" -j "${JOBS:-$(nproc)}" --target $suites _core megjit_mlir
ctest --test-dir "$arm/build" --output-on-failure -R "^($(echo "$suites" | tr ' ' '|'))\$"

# The package and what it needs of Python: wheels for AArch64, unpacked beside it.
wanted="numpy ml_dtypes tqdm pytest hypothesis scipy safetensors"
if [ "$wanted" != "$(cat "$arm/site/wanted" 2>/dev/null)" ]; then
    # shellcheck disable=SC2086
    tools/with_progress.sh arm-pip .venv/bin/python -m pip install --disable-pip-version-check --no-compile \
        --upgrade --target "$arm/site" --python-version 3.11 --implementation cp --only-binary :all: \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 $wanted
    echo "$wanted" >"$arm/site/wanted"
fi
for component in python package; do
    cmake --install "$arm/build" --component $component --prefix "$arm/site" >build/logs/arm-install.log
done
cd tests/python
# shellcheck disable=SC2046
PYTHONPATH="$arm/site" OMP_NUM_THREADS=2 qemu-aarch64 -L "$arm/root" "$arm/root/usr/bin/python3.11" \
    -m pytest -p no:cacheprovider $(cat arm_tests.txt)
echo "test_arm: all passed, $((($(date +%s) - start) / 60)) minutes"
