#!/bin/sh
# tests/torch with each release of torch that the backend knows (KNOWN in torch_backend/_private.py), in an environment of its own: that of the
# benchmarks if it has the release, else build/torch-RELEASE. Those of CUDA tensors run on the emulated card.
set -eu
cd "$(dirname "$0")/.."

MEGJIT_SITE=$(.venv/bin/python -c "import megengine, pathlib; print(pathlib.Path(megengine.__file__).parents[1])")
export MEGJIT_SITE
for release in $(sed -n 's/^KNOWN = (\(.*\)).*/\1/p' python/megengine/torch_backend/_private.py | tr -d '",'); do
    place=.venv-bench
    case "$($place/bin/python -c 'import torch; print(torch.__version__)' 2>/dev/null)" in
    "$release".*) ;;
    *)
        place=build/torch-$release
        [ -x "$place/bin/python" ] || "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv "$place"
        "$place/bin/python" -m pip install -q --disable-pip-version-check "torch==$release.*"
        ;;
    esac
    "$place/bin/python" -m pip install -q --disable-pip-version-check pytest expecttest torchvision transformers accelerate lightning peft scikit-learn onnxscript numpy ml_dtypes tqdm
    echo "tests/torch with torch $release, in $place"
    "$place/bin/python" -m pytest tests/torch "$@"
    echo "tests/torch/cuda on the emulated card"
    MEGJIT_COMPILE=sync tools/torch_on_card.sh "$place/bin/python" -m pytest -rs tests/torch/cuda "$@"
done
