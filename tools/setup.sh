#!/bin/sh
# setup.sh GROUP [PACKAGE...]: installs on Debian 12 what building needs and the further Debian packages given, then into
# .venv the Python packages that building, running and GROUP (demo or test, see pyproject.toml) need. GROUP none: no .venv.
# Does nothing when everything is there. Says which package could not be had.
set -eu
cd "$(dirname "$0")/.."

group=$1
shift
apt_packages="ca-certificates g++ cmake ninja-build ccache lld make git python3 python3-venv python3-dev
llvm-22-dev libmlir-22-dev mlir-22-tools zlib1g-dev libzstd-dev libgloo-dev $*"
missing=""
command -v dpkg-query >/dev/null || {
    echo "setup: not a Debian system; install by hand what these Debian packages have: $(echo "$apt_packages" | tr "\n" " ")" >&2
    apt_packages=""
}
for package in $apt_packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null; then
        sudo="sudo"
        sudo -v # asks now: later a progress line would hide the question
    else
        echo "setup: these Debian packages are missing and there is neither root nor sudo:$missing" >&2
        exit 1
    fi
    echo "setup: installing Debian packages:$missing"
    tools/with_progress.sh apt-update $sudo apt-get update || echo "setup: apt-get update failed; trying with the old lists" >&2
    unknown=""
    for package in $missing; do
        apt-cache show "$package" >/dev/null 2>&1 || unknown="$unknown $package"
    done
    if [ -n "$unknown" ]; then
        echo "setup: apt knows no package of these names:$unknown" >&2
        echo "setup: LLVM 22 comes with Debian 12's security updates: is bookworm-security among apt's sources?" >&2
        exit 1
    fi
    # shellcheck disable=SC2086
    tools/with_progress.sh apt-install $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $missing ||
        { echo "setup: apt-get could not install:$missing" >&2; exit 1; }
fi

[ "$group" != none ] || exit 0

python=${PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null || python=python3
if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "setup: $python is older than 3.11; set PYTHON to a newer one" >&2
        exit 1
    }
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv .venv || {
        rm -rf .venv # half made: the next run must not take it for ready
        echo "setup: $python -m venv failed" >&2
        exit 1
    }
fi
stamp=.venv/.requirements-$group
wanted=$(.venv/bin/python tools/requirements.py build run extras "$group")
if [ "$wanted" != "$(cat "$stamp" 2>/dev/null)" ]; then
    # --no-compile: most of the modules are never imported, and Python compiles those that are.
    # shellcheck disable=SC2086
    tools/with_progress.sh pip .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-compile $wanted ||
        { echo "setup: pip could not install what pyproject.toml lists" >&2; exit 1; }
    echo "$wanted" >"$stamp"
fi
