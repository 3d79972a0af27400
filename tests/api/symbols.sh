#!/bin/sh
# symbols.sh LIBRARY: it exports what symbols.txt records, and nothing else. A name that was there stays for ever.
set -eu
nm -D --defined-only "$1" | sed -n 's/^[0-9a-f]* [^A] \([^@]*\).*/\1/p' | LC_ALL=C sort | diff "$(dirname "$0")/symbols.txt" - ||
    { echo "libmegjit.so does not export what tests/api/symbols.txt records" >&2; exit 1; }
