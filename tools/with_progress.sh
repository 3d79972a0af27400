#!/bin/sh
# with_progress.sh LABEL COMMAND...: runs the command and shows, instead of its output, its newest line and the time so far:
# in place on a terminal, else as a line of its own every 8 s. Of a build that is the file that has started last: tools/compile.sh notes it,
# as ninja tells of a file when it is done. All of the output goes to build/logs/LABEL.log; when the command fails, its last lines and
# the path of the log are shown.
set -u
label=$1
shift
mkdir -p build/logs
log=build/logs/$label.log
start=$(date +%s)

passed() {
    seconds=$(($(date +%s) - start))
    [ "$seconds" -lt 60 ] && echo "$seconds s" || echo "$((seconds / 60)) min $((seconds % 60)) s"
}

# Of ninja's lines, the file alone: [12/300] Building CXX object a/CMakeFiles/b.dir/c.cpp.o -> [12/300] compiling a/c.cpp. Its first line
# speaks of globbed directories for as long as the first files take.
newest() {
    line=$(tail -c 4000 "$log" | tr '\r' '\n' | sed -e 's/^ *//; /^$/d' | tail -n 1)
    case $line in
    \[*/*\]*) # the file that has started last and is not done
        for file in $(tail -n 4 "$MEGJIT_STARTED" | tac); do
            grep -qF "/${file##*/}.o" "$log" && continue
            file=${file#"$PWD"/}
            line="${line%%\]*}] compiling ${file#build/*/}"
            break
        done ;;
    esac
    echo "$line" | sed -E 's,Building CXX object ,compiling ,; s,CMakeFiles/[^/]*\.dir/,,; s,\.o$,,; s,\[0/[0-9]*\] ,,' | cut -c1-90
}

show() {
    if [ -t 1 ]; then printf '\r\033[K%s: %s, %s' "$label" "$(newest)" "$(passed)"; else echo "$label: $(newest), $(passed)"; fi
}

export PYTHONUNBUFFERED=1 # pip's lines, when they are written
export MEGJIT_STARTED="$PWD/$log.started"
every=8
[ -t 1 ] && every=1
: >"$log" && : >"$MEGJIT_STARTED"
(while sleep "$every"; do show; done) &
shower=$!
trap 'kill $shower 2>/dev/null' EXIT
trap 'exit 130' INT TERM
"$@" >"$log" 2>&1
status=$?
kill $shower 2>/dev/null
rm -f "$MEGJIT_STARTED"
wait $shower 2>/dev/null
[ -t 1 ] && printf '\r\033[K'
if [ "$status" -ne 0 ]; then
    tail -n 60 "$log" >&2
    echo "$label: failed after $(passed); the whole output is in $log" >&2
    exit "$status"
fi
echo "$label: done, $(passed)"
