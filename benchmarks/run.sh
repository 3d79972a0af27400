#!/bin/sh
# Makes .venv-bench with the peers, then runs the harness; arguments go to it (see README.md).
set -eu
cd "$(dirname "$0")/.."

ours=.venv/bin/python
if ! "$ours" -c "import megengine" >/dev/null 2>&1; then
    echo "bench: megengine cannot be imported by $ours; run 'make build' first" >&2
    "$ours" -c "import megengine" 2>&1 | tail -n 1 >&2 || true
    [ "${BENCH_PEERS_ONLY:-}" ] || exit 1
fi

# The same interpreter as ours, so that calls cost the same on both sides.
if [ ! -x .venv-bench/bin/python ]; then
    base=$("$ours" -c "import sys; print(sys._base_executable)" 2>/dev/null || command -v "${PYTHON:-python3}")
    echo "bench: making .venv-bench with $("$base" --version)"
    "$base" -m venv .venv-bench || { echo "bench: $base -m venv failed" >&2; exit 1; }
fi
peers=.venv-bench/bin/python
stamp=.venv-bench/.requirements
if ! cmp -s benchmarks/requirements.txt "$stamp"; then
    echo "bench: installing the peers into .venv-bench (several GB where PyTorch has no CPU-only wheel)"
    missing=""
    grep -v '^#' benchmarks/requirements.txt > .venv-bench/wanted
    while read -r package; do
        "$peers" -m pip install -q --disable-pip-version-check "$package" </dev/null || missing="$missing $package"
    done < .venv-bench/wanted
    if [ "$missing" ]; then
        # Not stamped: the next run tries again. The harness marks what a missing peer leaves out.
        echo "bench: could not install:$missing; its rows will say so" >&2
    else
        cp benchmarks/requirements.txt "$stamp"
    fi
fi
"$peers" -c "import numpy" 2>/dev/null || { echo "bench: .venv-bench has no numpy, which the harness needs" >&2; exit 1; }

[ -z "${BENCH_SETUP_ONLY:-}" ] || exit 0

exec "$peers" benchmarks/harness.py --ours "$ours" "$@"
