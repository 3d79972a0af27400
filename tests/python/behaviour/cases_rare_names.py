"""Names drawn at random from the half that published programs use least, each as a program would use it."""

import io
import math
import os
import pickle
import tempfile

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager

X = np.arange(24, dtype="float32").reshape(2, 3, 4)
DRAWN = np.random.RandomState(0).randn(2, 3, 4).astype("float32")
IMAGE = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)


def ask_a_product_with_the_first_matrix_transposed():
    a, b = DRAWN[0], DRAWN[1, :, :2].copy()
    whole = np.full((2, 3), 100, "int8")
    return (
        F.matmul(Tensor(a), Tensor(b), transpose_a=True),
        F.matmul(Tensor(DRAWN), Tensor(b), transpose_a=True),
        F.matmul(Tensor(whole), Tensor(whole), transpose_a=True),
        Tensor(whole) @ Tensor(whole[0]),
    )


def ask_boxes_of_a_scaled_image():
    boxes = Tensor([[0, 2, 2, 14, 10], [0, 0, 0, 15, 15], [0, -4, -4, 20, 20]], dtype="float32")
    return F.vision.roi_align(Tensor(IMAGE), boxes, (2, 2), spatial_scale=1 / 4)


def ask_indexing_as_a_function():
    old, seen = Tensor.__getitem__, []

    def noted(self, index):
        seen.append(len(index))
        return old(self, index)

    Tensor.__getitem__ = noted
    try:
        part = Tensor(X)[0, ..., 1:]
    finally:
        Tensor.__getitem__ = old
    return part, Tensor(X)[1, 1], seen, list(map(Tensor.__getitem__, [Tensor(X)] * 2, [(0, 0), (1, 2)]))


def ask_an_error_function_by_its_mode():
    from megengine.functional.elemwise import _elwise

    return _elwise(Tensor(DRAWN), mode="erf"), _elwise(DRAWN[0], mode="ERF"), _elwise(0.5, mode="erf")


def ask_kernels_that_repeat_their_bits():
    before = mge.config.deterministic_kernel
    with mge.config._override(deterministic_kernel=True):
        inside = mge.config.deterministic_kernel
    return before, inside, mge.config.deterministic_kernel


def ask_an_initializer_with_its_bounds():
    layer = M.Linear(64, 64)
    bound = 1 / math.sqrt(64)
    M.init.uniform_(layer.weight, a=-bound, b=bound)
    values = layer.weight.numpy()
    return type(layer.weight).__name__, values.shape, bool((abs(values) <= bound).all()), bool(values.std() > bound / 2)


def ask_small_photographs_of_a_hundred_classes():
    from megengine.data.dataset import CIFAR100

    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "cifar-100-python"))
        parts = {
            "test": {b"data": (np.arange(3 * 3072) // 1024).reshape(3, 3072).astype("uint8"), b"fine_labels": [5, 6, 7], b"coarse_labels": [1, 2, 3]},
            "meta": {b"fine_label_names": [b"apple"], b"coarse_label_names": [b"fruit"]},
        }
        for name, part in parts.items():
            with open(os.path.join(root, "cifar-100-python", name), "wb") as file:
                pickle.dump(part, file, 2)
        photographs = CIFAR100(root=root, train=False, download=False)
        image, *labels = photographs[1]
        return len(photographs), image.shape, image[0, 0], labels, photographs.meta


def ask_what_a_remote_send_takes():
    import inspect

    return list(inspect.signature(F.distributed.remote_send).parameters)


def ask_a_repeated_border_by_its_op():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core._imperative_rt.ops import Padding

    op = Padding(front_offset_dim2=1, back_offset_dim3=2, padding_mode=Padding.PaddingMode.REPLICATE)
    return apply(op, Tensor(IMAGE)), op.padding_mode == Padding.PaddingMode.REPLICATE


def ask_places_of_another_image():
    grid = np.stack(np.meshgrid(np.arange(4), np.arange(4)), axis=-1)[None].astype("float32") * 1.3 - 0.7
    borders = ("replicate", "reflect", "reflect_101", "wrap", "constant")
    return [F.vision.remap(Tensor(IMAGE), Tensor(grid), border_mode=border, scalar=2.0) for border in borders]


def ask_an_op_of_a_user_for_two():
    from megengine.core.tensor.utils import subgraph_fn

    @subgraph_fn("Two", dtype=np.float32, device=Tensor(0.0).device, nr_inputs=2)
    def two(inputs, f, c):
        x, y = inputs
        return (f("max", x, y), f("fma3", x, y, c(1.0))), (True, True)

    return two(Tensor([1.0, 5.0]), Tensor([3.0, 2.0]))


def traced():
    from megengine.core.tensor import megbrain_graph as G
    from megengine.jit import trace

    double = trace(lambda x: F.relu(x * 2 - 1), symbolic=True, capture_as_const=True)
    double(Tensor(X[0]))
    file = io.BytesIO()
    double.dump(file, arg_names=["data"], output_names=["out"])
    file.seek(0)
    loaded = G.load_graph(file)
    return G, loaded.output_vars_list


def ask_an_input_of_a_loaded_graph():
    from megengine.utils.comp_graph_tools import get_dep_vars, replace_vars

    G, outputs = traced()
    (data,) = get_dep_vars(outputs, "Host2DeviceCopy")
    image = G.InputNode(device="xpux", dtype=np.int32, shape=(2, 4), graph=data.graph)
    floats = G.InputNode(device="xpux", dtype=np.float32, shape=(2, 4), graph=data.graph)
    floats.set_value(Tensor(X[0, :2])._dev_tensor())
    (y,) = replace_vars(outputs, {data: floats.outputs[0]})
    return [(str(var.dtype), tuple(var.shape)) for var in (image.outputs[0], floats.outputs[0], y)]


def ask_gray_images():
    import megengine.data.transform.vision.functional as VF

    image = np.arange(24, dtype="uint8").reshape(2, 4, 3) * 10
    return VF.to_gray(image), VF.to_gray(image.astype("float32"))


def ask_a_convolution_that_learns_its_scale():
    from megengine.quantization import min_max_fakequant_qconfig

    layer = M.qat.Conv2d(3, 2, 2)
    layer.weight[...] = Tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(2, 3, 2, 2))
    layer.set_qconfig(min_max_fakequant_qconfig)
    y = layer(Tensor(DRAWN.reshape(1, 3, 2, 4)))
    return y, layer.act_observer.get_qparams().scale, layer.weight_observer.get_qparams().scale


def ask_scales_of_a_calibration():
    from megengine.quantization import (
        calibration_qconfig,
        disable_observer,
        enable_observer,
        quantize_qat,
    )

    net = M.Sequential(M.QuantStub(), M.ConvRelu2d(3, 2, 2), M.DequantStub())
    net[1].weight[...] = Tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(2, 3, 2, 2))
    net = quantize_qat(net, qconfig=calibration_qconfig)
    net.eval()
    enable_observer(net)
    y = net(Tensor(DRAWN.reshape(1, 3, 2, 4)))
    disable_observer(net)
    return y, [module.act_observer.get_qparams().scale for module in (net[0], net[1])]


def ask_an_image_of_another_size():
    modes = ("bilinear", "nearest", "bicubic")
    return [F.vision.interpolate(Tensor(IMAGE), size=(6, 5), mode=mode) for mode in modes]


def ask_points_of_a_line_by_keywords():
    return F.linspace(start=0.5, stop=31.5, num=3), F.linspace(0, 10, num=5.0), F.linspace(0, 10, num=0)


def ask_variances_over_axes():
    x = Tensor(DRAWN)
    return F.var(x, axis=1), F.var(x, axis=(0, 2)), F.var(x, axis=[1, 2], keepdims=True), F.var(x, axis=-1, keepdims=True)


def ask_an_input_made_by_hand():
    from megengine.core._imperative_rt import make_h2d
    from megengine.utils.comp_graph_tools import get_dep_vars, replace_vars

    _, outputs = traced()
    (data,) = get_dep_vars(outputs, "Host2DeviceCopy")
    image = make_h2d(data.graph, data.comp_node, data.dtype, (5, 4), "image")
    (y,) = replace_vars(outputs, {data: image})
    return image.name, tuple(image.shape), str(image.dtype), tuple(y.shape)


def ask_a_scope_that_is_left_by_its_name():
    from megengine.core._imperative_rt.core2 import pop_scope, push_scope

    push_scope("stage")
    push_scope("layer")
    y = F.relu(Tensor([-1.0, 2.0]))
    pop_scope("layer")
    pop_scope("stage")
    return y


def ask_a_constant_border():
    return (
        F.nn.pad(src=Tensor(X[0]), pad_width=((1, 0), (0, 2)), mode="constant", constant_value=-1.5),
        F.nn.pad(Tensor(X[0].astype("int32")), [[1, 1]], constant_value=7),
    )


def ask_repeated_elements():
    from megengine.functional.tensor import repeat

    x = Tensor(X[0])
    gm = GradManager().attach([x])
    with gm:
        y = repeat(inp=x, repeats=2, axis=1)
        gm.backward((y * y).sum())
    return y, x.grad, repeat(x, 2)


def ask_a_tensor_of_a_format():
    from megengine.tensor import Tensor

    x = Tensor(IMAGE, format="nchw")
    return x.format, x.shape, x, x.reshape(-1).format


def ask_a_level_of_errors():
    levels = []
    for level in (2, 1, 0):
        mge.config.async_level = level
        levels.append(mge.config.async_level)
    return levels


def ask_a_norm_by_variances():
    x = Tensor(DRAWN.reshape(2, 3, 2, 2))
    return (x - F.mean(x, axis=(2, 3), keepdims=True)) / F.sqrt(F.var(x, axis=(2, 3), keepdims=True) + 1e-5)


def ask_three_of_a_number():
    from megengine.utils.tuple_function import _triple

    return _triple(3), _triple([1, 2, 3]), _triple(np.int64(2)), M.Conv3d(1, 2, _triple(3), padding=_triple(1)).weight.shape
