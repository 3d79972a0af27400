#!/bin/sh
# Installs what building and testing need on Debian 12: system packages, then .venv with the Python ones.
# Does nothing when everything is there. Says which package could not be had.
set -eu
cd "$(dirname "$0")/.."

apt_packages="ca-certificates g++ cmake ninja-build ccache lld make git python3 python3-venv python3-dev
llvm-22-dev libmlir-22-dev mlir-22-tools zlib1g-dev libzstd-dev libgtest-dev libgmock-dev"
missing=""
for package in $apt_packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null; then sudo="sudo"; else
        echo "setup: these Debian packages are missing and there is neither root nor sudo:$missing" >&2
        exit 1
    fi
    echo "setup: installing Debian packages:$missing"
    $sudo apt-get update -q >/dev/null || echo "setup: apt-get update failed; trying with the old lists" >&2
    for package in $missing; do
        apt-cache show "$package" >/dev/null 2>&1 || { echo "setup: Debian has no package '$package' for this machine" >&2; exit 1; }
    done
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends $missing >/dev/null ||
        { echo "setup: apt-get could not install:$missing" >&2; exit 1; }
fi

python=${PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null || python=python3
if [ ! -x .venv/bin/python ]; then
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv .venv || { echo "setup: $python -m venv failed" >&2; exit 1; }
fi
stamp=.venv/.requirements
if ! cmp -s tools/requirements.txt "$stamp"; then
    echo "setup: installing Python packages into .venv"
    .venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements.txt ||
        { echo "setup: pip could not install what tools/requirements.txt lists" >&2; exit 1; }
    cp tools/requirements.txt "$stamp"
fi
