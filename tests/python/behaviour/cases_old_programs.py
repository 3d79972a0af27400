"""Names that real programs take from the inside, and that are seldom used: twenty drawn at random, and what was found beside them."""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def ask_nodes_of_devices():
    from megengine.core._imperative_rt import CompNode
    from megengine.core._imperative_rt.common import DeviceType

    return repr(CompNode("cpu1")), CompNode("cpu1") == CompNode("cpu1:0"), DeviceType.CPU.name


def ask_padding_by_its_op():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.ops import builtin

    mode = builtin.Padding.PaddingMode.REPLICATE
    sides = dict(front_offset_dim0=1, back_offset_dim0=1, front_offset_dim1=0, back_offset_dim1=2)
    zeros = {f"{side}_offset_dim{axis}": 0 for axis in range(7) for side in ("front", "back")}
    (y,) = apply(builtin.Padding(**{**zeros, **sides}, padding_val=0, padding_mode=mode), Tensor(X[0]))
    return y


def ask_an_elementwise_op_by_its_mode():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.ops.builtin import Elemwise

    return apply(Elemwise(Elemwise.Mode.AND), Tensor([True, False]), Tensor([True, True]))[0]


def ask_losses_by_their_module():
    from megengine.functional.loss import cross_entropy

    return cross_entropy(Tensor([[1.0, 2.0]]), Tensor([1]))


def ask_one_hot_places():
    return F.nn.indexing_one_hot(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([0, 1]), axis=1, keepdims=True)


def ask_windows_that_slide():
    return F.sliding_window(Tensor(X.reshape(1, 1, 4, 6)), kernel_size=2, stride=2)


def ask_ranks_without_a_group():
    from megengine.distributed.group import get_rank, get_world_size, is_distributed

    return get_rank(), get_world_size(), is_distributed()


def ask_cropped_images_and_masks():
    from megengine.data.transform import CenterCrop, Compose, ToMode

    crop = Compose([CenterCrop((2, 2), order=("image", "mask")), ToMode(order=["image", "mask"])])
    return crop.apply((np.arange(48, dtype="uint8").reshape(4, 4, 3), np.arange(16, dtype="uint8").reshape(4, 4, 1)))


def ask_a_preloading_loader():
    from megengine.data import DataLoader, SequentialSampler
    from megengine.data.dataset import ArrayDataset

    data = ArrayDataset(X.reshape(8, 3), np.arange(8, dtype="int32"))
    return [(type(x).__name__, x.shape, y) for x, y in DataLoader(data, SequentialSampler(data, batch_size=4), preload=True)]


def ask_adam_with_an_epsilon():
    from megengine.optimizer import Adam

    layer = M.Linear(2, 1)
    layer.weight[...] = Tensor([[1.0, 2.0]])
    adam = Adam(layer.parameters(), lr=1e-2, betas=(0.9, 0.99), eps=1e-2, weight_decay=1e-4)
    with mge.autodiff.GradManager().attach(layer.parameters()) as gm:
        gm.backward(layer(Tensor([[0.01, 0.02]])).sum())
    adam.step().clear_grad()
    return layer.weight, adam.param_groups[0]["eps"]


def ask_batch_norm_over_all_of_one_process():
    mean, var = Tensor(np.zeros((1, 3, 1, 1), "float32")), Tensor(np.ones((1, 3, 1, 1), "float32"))
    y = F.nn.sync_batch_norm(Tensor(X.reshape(2, 3, 2, 2)), mean, var, training=True, momentum=0.9, eps=1e-5)
    return y, mean, var


def ask_a_hook_and_its_removal():
    layer, seen = M.Linear(2, 3), []
    hook = layer.register_forward_hook(lambda module, given, result: seen.append((type(module).__name__, type(given).__name__, result.shape)))
    layer(Tensor([[1.0, 2.0]]))
    hook.remove()
    layer(Tensor([[1.0, 2.0]]))
    return seen


def ask_a_norm_by_another_name():
    return F.normalize(Tensor([[3.0, 4.0]]), p=2, axis=1)


def ask_initializers():
    weight = mge.Parameter(np.ones(3, "float32"))
    M.init.zeros_(weight)
    return weight, F.ones((2, 2), dtype="float32")
