#!/bin/sh
# arm_root.sh [PACKAGE...]: unpacks Debian 12's arm64 packages that building and running for AArch64
# need, and those given, into build/arm/root. Nothing is installed: LLVM's and MLIR's packages of two
# architectures have files of the same names. Does nothing when the same list was unpacked before.
set -eu
cd "$(dirname "$0")/.."

packages="libc6-dev libstdc++6 llvm-22-dev libmlir-22-dev mlir-22-tools zlib1g-dev libzstd-dev libgtest-dev
libgmock-dev libgloo-dev python3 libpython3.11-dev $*"
arm=$PWD/build/arm
[ "$packages" != "$(cat "$arm/unpacked" 2>/dev/null)" ] || exit 0

# An apt of its own, which asks the servers of this machine's: its lists and archives lie in build/arm, and it knows no
# installed package.
mkdir -p "$arm/apt/lists/partial" "$arm/apt/archives/partial" "$arm/root"
: >"$arm/apt/status"
cat >"$arm/apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Dir::State::Lists "$arm/apt/lists";
Dir::State::Status "$arm/apt/status";
Dir::Cache::Archives "$arm/apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
export APT_CONFIG="$arm/apt/apt.conf"
tools/with_progress.sh arm-update apt-get update
# shellcheck disable=SC2086
tools/with_progress.sh arm-download apt-get install -y --download-only --no-install-recommends $packages
for file in "$arm"/apt/archives/*.deb; do
    dpkg -x "$file" "$arm/root"
done
echo "$packages" >"$arm/unpacked"
