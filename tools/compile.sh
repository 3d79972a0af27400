#!/bin/sh
# compile.sh COMPILER ARGUMENT... FILE: runs the compiler, and adds the file to those that tools/with_progress.sh shows as they start.
if [ -n "${MEGJIT_STARTED:-}" ]; then
    for file; do :; done
    echo "$file" >>"$MEGJIT_STARTED"
fi
exec "$@"
