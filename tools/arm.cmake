# Compiles for AArch64 on x86-64 Debian: against the packages that tools/arm_root.sh unpacks, and runs tests under qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../build/arm/root ABSOLUTE)
set(CMAKE_SYSROOT ${root})
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${root})

# Python runs here while building; the headers are those of the interpreter that will import the extension.
set(Python_INCLUDE_DIR ${root}/usr/include/python3.11)
set(NB_SUFFIX .cpython-311-aarch64-linux-gnu.so)
