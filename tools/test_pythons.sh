#!/bin/sh
# test_pythons.sh: what depends on the version of Python (bytecode that guards read, pickles, files, the documents' programs) on
# CPython 3.12 and 3.13, where they are found, with one build for both (the stable ABI). A version that is not there is named.
set -eu
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
tests="test_guards_closed.py test_guards_hostile.py test_capture_battery.py test_without_host.py test_grads_without_host.py
    test_serialization.py files/test_model_files.py files/test_hostile_files.py test_documents.py"
# Pages that compile or train for long, and ask nothing else of Python.
without="not code_generation and not distributed and not cpp and not examples"

wheel=
for version in 3.12 3.13; do
    base=$(tools/find_python.sh "$version") || continue
    if [ -z "$wheel" ]; then
        tools/wheels.sh abi3
        wheel=$(ls "$PWD"/build/wheels/abi3-found/*.whl)
    fi
    env=build/wheels/test-$version
    [ -x "$env/bin/python" ] || "$base" -m venv "$env"
    python=$PWD/$env/bin/python
    # shellcheck disable=SC2046
    tools/with_progress.sh "test-$version-pip" "$python" -m pip install --disable-pip-version-check --progress-bar off --no-compile \
        $("$python" tools/requirements.py run test extras | grep -v "^ruff\|^mypy\|^pyright\|^clang-format\|^nvidia\|^nbclient\|^ipykernel")
    tools/with_progress.sh "test-$version-pip" "$python" -m pip install --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    (cd / && "$python" -c "import megengine, sys; print('test_pythons: Python', sys.version.split()[0], megengine.__file__)")
    # shellcheck disable=SC2086
    (cd tests/python && "$python" -m pytest -p no:cacheprovider -n "$jobs" -k "$without" $tests)
done
