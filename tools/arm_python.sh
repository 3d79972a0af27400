#!/bin/sh
# arm_python.sh ARGUMENT...: the Python of the emulated Debian (tools/arm_root.sh) with the packages in
# build/arm/site. Its sys.executable is this script, so that programs which start Python again run
# without binfmt_misc, for which one needs privileges.
arm=$(dirname "$(readlink -f "$0")")/../build/arm
arm=$(readlink -f "$arm")
PYTHONHOME=$arm/root/usr PYTHONPATH=$arm/site${PYTHONPATH:+:$PYTHONPATH} \
    exec qemu-aarch64 -0 "$(readlink -f "$0")" -L "$arm/root" "$arm/root/usr/bin/python3.11" "$@"
