#!/bin/sh
# try_wheels.sh: installs the wheels of dist/ into clean environments of Python 3.11, 3.12 and 3.13, builds the programs of docs/cpp.md
# with the package alone, and runs the default Python tests in each, the README's tour among them. That of 3.11 has the oldest NumPy and
# no extra but onnx, that of 3.13 no libHalide: what needs them is skipped, and says so. Versions that are not there are named and left out.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc)
# Of an environment with the package alone, as pip leaves it: compiled files and Python's own packages included; and without NumPy and pip.
most_mb=235
most_beyond_mb=145
[ -n "$(ls dist/*.whl 2>/dev/null)" ] || { echo "try_wheels: dist/ has no wheels; run make wheels" >&2; exit 1; }

# try VERSION WHEEL EXTRAS REQUIREMENT...
try() {
    version=$1 wheel=$2 extras=$3
    shift 3
    base=$(tools/find_python.sh "$version") || return 0
    env=build/wheels/try-$version
    rm -rf "$env"
    "$base" -m venv "$env"
    tools/with_progress.sh "try-$version-alone" "$env/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$PWD/$(ls dist/$wheel)"
    mb=$(du -sm "$env" | cut -f1)
    beyond_mb=$((mb - $(du -scm "$env"/lib/python*/site-packages/numpy* "$env"/lib/python*/site-packages/pip* | tail -n 1 | cut -f1)))
    [ "$mb" -le "$most_mb" ] || { echo "try_wheels: $env has $mb MB, more than $most_mb" >&2; exit 1; }
    [ "$beyond_mb" -le "$most_beyond_mb" ] || { echo "try_wheels: beyond NumPy and pip $env has $beyond_mb MB, more than $most_beyond_mb" >&2; exit 1; }
    echo "try_wheels: Python $version, the package alone: $mb MB, beyond NumPy and pip $beyond_mb MB"
    (cd / && "$OLDPWD/$env/bin/python" -c "import megengine as m, megengine.functional as F; assert F.conv2d(m.tensor([[[[1.0, 2.0]]]]), m.tensor([[[[3.0]]]])).tolist() == [[[[3.0, 6.0]]]]")
    (cd tests/python && "../../$env/bin/python" documented.py ../../docs/cpp.md)
    # shellcheck disable=SC2046
    tools/with_progress.sh "try-$version-pip" "$env/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile \
        "$PWD/$(ls dist/$wheel)$extras" "$@" $("$env/bin/python" tools/requirements.py test | grep -v "^ruff\|^mypy\|^pyright")
    python=$PWD/$env/bin/python
    (cd / && "$python" -c "import megengine, numpy, sys; print('try_wheels: Python', sys.version.split()[0], 'NumPy', numpy.__version__, megengine.__file__)")
    (cd tests/python && "$python" -m pytest -p no:cacheprovider -n "$jobs" -rs .)
}

try 3.11 "*-cp311-*.whl" "[onnx,tensorboard]" "numpy==1.23.5"
try 3.12 "*-abi3-*.whl" "[all]"
try 3.13 "*-abi3-*.whl" "[vision,onnx,tensorboard]"
