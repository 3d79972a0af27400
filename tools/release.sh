#!/bin/sh
# release.sh [--check] VERSION: makes the tag vVERSION of this commit, which .github/workflows/release.yml publishes when it is pushed.
# Refuses, and says why, where the tree is not that release: a change that is not committed, another version in version.py or
# CITATION.cff, a CHANGELOG without a dated section of it or with unreleased lines above, a tag that is there. --check: makes none.
set -eu
cd "$(dirname "$0")/.."
check=
[ "${1:-}" != --check ] || { check=yes && shift; }
version=${1:-}
refuse() {
    printf 'release: %s\n' "$1" >&2
    exit 1
}
case $version in
*[!0-9.]* | "" | .* | *.) refuse "give the version, such as 0.1.0, not '$version'" ;;
esac

changed=$(git status --porcelain)
[ -z "$changed" ] || refuse "these files are not committed; commit them, or take them away
$changed"
grep -q "^megjit_version = \"$version\"$" python/megengine/version.py ||
    refuse "python/megengine/version.py says $(grep "^megjit_version" python/megengine/version.py), not $version"
grep -q "^version: $version$" CITATION.cff || refuse "CITATION.cff says $(grep "^version" CITATION.cff), not $version"
released=$(sed -n "s/^## \[$version\] - \([0-9]*-[0-9]*-[0-9]*\)$/\1/p" CHANGELOG.md)
[ -n "$released" ] || refuse "CHANGELOG.md has no section \"## [$version] - $(date +%Y-%m-%d)\"; what is under [Unreleased] belongs there"
[ -z "$(sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/{/^- /p}' CHANGELOG.md)" ] || refuse "CHANGELOG.md has lines under [Unreleased]; they belong to $version"
grep -q "^date-released: $released$" CITATION.cff || refuse "CITATION.cff needs \"date-released: $released\", as CHANGELOG.md has it"
if [ -n "$check" ]; then
    echo "release: this commit is megjit $version"
    exit
fi
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || refuse "the tag v$version is there already"
git tag -a "v$version" -m "megjit $version"
echo "release: made the tag v$version; publish it: git push origin v$version"
