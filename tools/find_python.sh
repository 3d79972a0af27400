#!/bin/sh
# find_python.sh VERSION: the path of an interpreter of that version ("3.12"): of WHEEL_PYTHONS (a list of paths) where that is
# set, else of .venv, of PATH, or the newest that pyenv has. Fails, and says so, where there is none.
set -u
cd "$(dirname "$0")/.."
version=$1

candidates() {
    if [ -n "${WHEEL_PYTHONS:-}" ]; then
        # shellcheck disable=SC2086
        printf '%s\n' $WHEEL_PYTHONS
        return
    fi
    echo .venv/bin/python
    command -v "python$version"
    ! command -v pyenv >/dev/null || ls -d "$(pyenv root)"/versions/"$version".*/bin/python 2>/dev/null | sort -rV
}

for python in $(candidates); do
    found=$("$python" -c 'import sys; print(sys._base_executable, "%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    [ "${found##* }" != "$version" ] || { echo "${found% *}" && exit 0; }
done
echo "there is no Python $version: install it (pyenv install $version), or name it in WHEEL_PYTHONS" >&2
exit 1
