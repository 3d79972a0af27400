#!/bin/sh
# Builds the wheels into dist/: one for CPython 3.11, one with the stable ABI for 3.12 and later, which is left out, and said,
# where there is no such Python. Both are stripped, audited and at most 60 MB.
set -eu
cd "$(dirname "$0")/.."
most_mb=60
# Not part of the wheel: what packages that it depends on bring, what extras bring, and the OpenMP that oneDNN shares with us.
from_elsewhere="--exclude libdnnl.so.* --exclude libHalide.so --exclude libgomp.so.1 --exclude libtbb.so.*"

# build PYTHON [OPTION...]: in an environment of its own; dependencies of Debian's are those of `make build`.
build() {
    python=$1
    shift
    name=wheel-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    env=build/wheels/$name
    [ -x "$env/bin/python" ] || "$python" -m venv "$env"
    # shellcheck disable=SC2046
    tools/with_progress.sh "$name-pip" "$env/bin/python" -m pip install --disable-pip-version-check $("$env/bin/python" tools/requirements.py build wheels)
    rm -rf "$env/raw" "$env/audited"
    PATH="$PWD/$env/bin:$PATH" tools/with_progress.sh "$name" "$env/bin/python" -m pip wheel -v --disable-pip-version-check \
        --no-build-isolation --no-deps --config-settings=build-dir=build/wheel-{wheel_tag} "$@" -w "$env/raw" .
    # shellcheck disable=SC2086
    PATH="$PWD/$env/bin:$PATH" "$env/bin/python" -m auditwheel repair $from_elsewhere -w "$env/audited" "$env"/raw/*.whl
    for wheel in "$env"/audited/*.whl; do
        mb=$(($(stat -c %s "$wheel") / 1000000 + 1))
        [ "$mb" -le "$most_mb" ] || { echo "wheels: $wheel has $mb MB, more than $most_mb" >&2; exit 1; }
        mkdir -p dist
        cp "$wheel" dist/
        echo "wheels: dist/$(basename "$wheel"), $mb MB"
    done
}

mkdir -p dist
rm -f dist/*.whl
build "$(tools/find_python.sh 3.11)"
for version in 3.12 3.13; do
    if python=$(tools/find_python.sh "$version"); then
        build "$python" --config-settings=wheel.py-api=cp312
        exit 0
    fi
done
echo "wheels: none with the stable ABI, for 3.12 and later" >&2
exit 1
