#!/usr/bin/env bash
# bare_machine.sh [--only demo|test] [--keep] [FOLDER]: makes a Debian 12 by debootstrap in FOLDER (a new one under /tmp), clones
# HEAD of this repository there, runs the two commands of the README with nothing but make installed, and says what each took.
# Needs root and debootstrap. How to reach the network it takes from this machine: apt's sources and settings, pip's, proxies,
# certificates. The folder is removed at the end, but with --keep.
set -euo pipefail
cd "$(dirname "$0")/.."

commands="demo test" keep="" folder=""
while [ $# -gt 0 ]; do
    case "$1" in
    --only) commands=${2:?--only needs demo or test} && shift ;;
    --keep) keep=yes ;;
    -*) echo "bare_machine: unknown option $1; there are --only demo|test and --keep" >&2 && exit 2 ;;
    *) folder=$1 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo "bare_machine: needs root, for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "bare_machine: needs debootstrap: apt-get install debootstrap" >&2; exit 1; }
[ -z "$folder" ] || [ ! -e "$folder" ] || { echo "bare_machine: $folder exists already; name a new folder" >&2; exit 1; }
[ -n "$folder" ] && mkdir -p "$folder" || folder=$(mktemp -d /tmp/bare_machine.XXXXXX)
[ -n "$keep" ] || trap 'rm -rf --one-file-system "$folder"' EXIT

# The mirror that apt uses here for this release; debootstrap's own where it uses none.
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 2>/dev/null |
    awk '$1 == "bookworm" && $2 == "main" { print $3; exit }' || true)
echo "bare_machine: debootstrap into $folder"
# shellcheck disable=SC2086
tools/with_progress.sh debootstrap debootstrap --variant=minbase --include=make bookworm "$folder" $mirror

copy() { for path; do [ ! -e "$path" ] || { mkdir -p "$folder$(dirname "$path")" && cp -rL "$path" "$folder$(dirname "$path")/"; }; done; }
rm -f "$folder/etc/apt/sources.list"
copy /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates /etc/apt/auth.conf.d /etc/apt/keyrings \
    /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources
for file in /etc/apt/apt.conf.d/*; do ! grep -q 'Acquire::' "$file" || copy "$file"; done
git clone -q --no-local . "$folder/root/megjit"

network=() # but for folders of this machine
while IFS= read -r name; do network+=("$name=${!name}"); done < <(compgen -e | grep -iE '^(PIP_|(https?|no|all)_proxy$)' | grep -vx PIP_FIND_LINKS || true)

# In a mount namespace of its own: nothing is left mounted, however this ends.
inside() {
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$folder" \
        env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${network[@]}" sh -c "cd /root/megjit && $1"
}

took=""
TIMEFORMAT="%R %U %S"
exec 3>&1 4>&2
for command in $commands; do
    echo "bare_machine: make $command"
    figures=$({ time inside "make $command" >&3 2>&4; } 2>&1) || { echo "bare_machine: make $command failed" >&2; exit 1; }
    took+=$(echo "$figures" | awk -v c="$command" '{ printf "make %s: %d s, %d s of CPU", c, $1, $2 + $3 }')$'\n'
done
printf '%s' "$took"
