#!/bin/sh
# test_arm.sh [PART...]: builds for AArch64 on x86-64, and runs under qemu what PART names; all of it by
# default, in this order:
#   suites     the C++ tests of runtime, memory, codegen, jit, of the kernels and of the kernel compiler
#   wheel      what pip installs, built here and installed by the emulated Debian's Python
#   python     one in ten of the Python tests, and the first of each file
#   documents  the documents' programs, where they lie beside the clone
#   demo       what `make demo` trains
#   static     a function that `package --static` writes on x86-64
#   loops      kernels' loops, counted by llvm-mca
#   fuzz       500 random graphs
set -eu
cd "$(dirname "$0")/.."
start=$(date +%s)
arm=$PWD/build/arm
python=$PWD/tools/arm_python.sh
native=$PWD/.venv/bin/python
suites="runtime_tests memory_tests codegen_tests jit_tests backends_tests mlir_tests"

tools/setup.sh test g++-aarch64-linux-gnu qemu-user
tools/arm_root.sh
export JOBS="${JOBS:-$(nproc)}" CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}"

suites() {
    # shellcheck disable=SC2086
    tools/with_progress.sh arm-suites cmake --build "$arm/build" -j "$JOBS" --target $suites megjit_mlir
    # qemu 7.2 stops a forked child of a process with threads as soon as it starts one itself (an assertion of its own).
    GTEST_FILTER=-ParallelForkTest.*:ServiceTest.AForkedChildCompiles \
        ctest --test-dir "$arm/build" --output-on-failure -R "^($(echo "$suites" | tr ' ' '|'))\$"
}

# Packages of Python for Arm, which pip of this machine unpacks.
packages() {
    .venv/bin/python -m pip install -q --disable-pip-version-check --only-binary=:all: --python-version 3.11 --target "$arm/site" --upgrade \
        --platform manylinux_2_34_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 "$@"
}

wheel() {
    rm -rf "$arm/wheel"
    _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so \
        tools/with_progress.sh arm-wheel .venv/bin/python -m pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps \
        --config-settings=build-dir="$arm/build" --config-settings=cmake.args="-DCMAKE_TOOLCHAIN_FILE=$PWD/tools/arm.cmake" \
        --config-settings=cmake.define.MEGJIT_WITH_HALIDE=OFF --config-settings=cmake.define.MEGJIT_TESTS=OFF -w "$arm/wheel" .
    packages numpy ml_dtypes tqdm pip pytest pytest-xdist hypothesis scikit-learn scipy mpmath safetensors onnx tensorboardX
    rm -rf "$arm/site/megengine"
    "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$arm/site" --upgrade "$arm"/wheel/*.whl
    "$python" -m megengine info
}

python() { (cd tests/python && "$python" -m pytest -n "$JOBS" --one-in 10 .); }

documents() {
    programs=../shared/acceptance/seed_programs.py
    [ -e "$programs" ] || return 0
    # Halide has no wheel there, and under qemu ResNet-50 takes more than the ten minutes that a program has.
    # shellcheck disable=SC2046
    "$python" "$programs" $("$python" "$programs" --list | grep -o '^[^ ]*' | grep -v -e HALIDE -e resnet50)
}

demo() { "$python" examples/train_digits.py; }

static() {
    rm -rf "$arm/static" && mkdir "$arm/static"
    cp tests/arm/static.py tests/arm/static.c "$arm/static"
    (cd "$arm/static" && "$native" static.py && "$native" -m megengine package small.dump --static small --name small --isa neon &&
        aarch64-linux-gnu-gcc-12 --sysroot="$arm/root" -Ismall -Wa,-Ismall static.c small/small.c small/k*.o -lm -o static &&
        qemu-aarch64 -L "$arm/root" ./static)
}

loops() { "$native" tests/arm/loops.py; }

fuzz() {
    tools/with_progress.sh arm-fuzz cmake --build "$arm/build" -j "$JOBS" --target graph_fuzz
    qemu-aarch64 -L "$arm/root" "$arm/build/tests/graph_fuzz" --backend MLIR --programs 500
}

# Without oneDNN and Halide, which have no wheels there.
cmake -G Ninja -S . -B "$arm/build" -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/arm.cmake" -DMEGJIT_WITH_HALIDE=OFF \
    -DMEGJIT_TESTS=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >build/logs/arm-cmake.log
[ $# -gt 0 ] || set -- suites wheel python documents demo static loops fuzz
for part; do
    before=$(date +%s)
    "$part"
    echo "test_arm: $part passed, $((($(date +%s) - before) / 60)) minutes"
done
echo "test_arm: all passed, $((($(date +%s) - start) / 60)) minutes"
