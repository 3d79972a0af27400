#!/bin/sh
# test_arm.sh: builds for AArch64 on x86-64, and runs under qemu the C++ tests of runtime, memory,
# codegen, jit, of the kernels and of the kernel compiler.
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
tools/with_progress.sh arm cmake --build "$arm/build" -j "${JOBS:-$(nproc)}" --target $suites megjit_mlir
ctest --test-dir "$arm/build" --output-on-failure -R "^($(echo "$suites" | tr ' ' '|'))\$"

echo "test_arm: all passed, $((($(date +%s) - start) / 60)) minutes"
