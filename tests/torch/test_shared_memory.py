"""Memory that is shared with PyTorch, in both directions."""

import numpy as np
import pytest
import torch

import megengine as mge
from megengine.utils.dlpack import from_dlpack


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_a_tensor_over_torchs_memory(dtype):
    theirs = torch.ones(300, 3, dtype=dtype)
    ours = from_dlpack(theirs, copy=False)
    theirs[0] = 0
    np.testing.assert_array_equal(ours.astype("float32").numpy(), theirs.float().numpy())


@pytest.mark.parametrize("theirs", [torch.ones(3, dtype=torch.int64), torch.ones(3, 4).t(), torch.ones(2, device="meta")], ids=["int64", "transposed", "meta"])
def test_what_cannot_be_shared_is_refused(theirs):
    with pytest.raises(BufferError, match="cannot be shared"):
        from_dlpack(theirs, copy=False)


def test_a_torch_tensor_over_our_memory():
    ours = mge.tensor(np.arange(1000, dtype="float32"))
    theirs = torch.from_dlpack(ours, copy=False)
    del ours
    assert theirs.sum().item() == 499500
