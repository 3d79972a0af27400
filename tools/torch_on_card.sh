#!/bin/sh
# torch_on_card.sh PYTHON ARGUMENT...: runs a Python that has PyTorch's CUDA build on the emulated card (`make card`), with a
# stand-in for libcudart; on a machine with a GPU the program is to be started without this script.
set -eu
package=${MEGJIT_SITE:?the folder that has the package}/megengine
[ -e "$package/libmegjit_card_cudart.so" ] || { echo "torch_on_card.sh: run \`make card\` first; it needs the headers of nvidia-cuda-runtime" >&2; exit 1; }
export MEGJIT_EMULATED_GPUS="${MEGJIT_EMULATED_GPUS:-1}" MEGJIT_CUDA_DRIVER="$package/libmegjit_card.so"
export MEGJIT_CUDNN="$package/libmegjit_card_cudnn.so" MEGJIT_CUBLASLT="$package/libmegjit_card_cublaslt.so"
for library in "$MEGJIT_SITE"/nvidia/cu13/lib/libnvrtc.so.13; do
    [ ! -e "$library" ] || export MEGJIT_NVRTC="${MEGJIT_NVRTC:-$library}"
done
LD_PRELOAD="$package/libmegjit_card_cudart.so" exec "$@"
