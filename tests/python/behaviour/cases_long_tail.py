"""Twenty names drawn at random from those that one or two published programs use, each as a program would use it."""

import os
import tempfile

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor

X = np.arange(24, dtype="float32").reshape(2, 3, 4)
IMAGE = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)


def ask_uniform_from_a_lower_bound():
    x = mge.random.uniform(low=2, high=3, size=(1000,))
    return x.shape, x.dtype == np.float32, bool((x.numpy() >= 2).all()), bool((x.numpy() < 3).all())


def ask_a_transposed_convolution_with_padding():
    w = Tensor(np.arange(4, dtype="float32").reshape(1, 1, 2, 2))
    return F.conv_transpose2d(Tensor(IMAGE), w, stride=2, padding=1), F.conv_transpose2d(Tensor(IMAGE), w, padding=(1, 0))


def ask_points_of_a_line():
    return F.linspace(3, 10, num=5), F.linspace(0, 1, num=1), F.linspace(-1, 1, num=4, dtype="float32")


def ask_a_tensor_set_to_zero():
    x = Tensor(X)
    x.reset_zero()
    return x


def ask_a_transposition_by_its_pattern():
    x = Tensor(X)
    return F.transpose(x, pattern=(2, 0, 1)), F.transpose(x, pattern=(0, "x", 2, 1)).shape, F.transpose(x, pattern=[1, 0, 2]).shape


def ask_a_reduction_that_is_scattered_over_one_process():
    from megengine.distributed.functional import reduce_scatter_sum

    return callable(reduce_scatter_sum)


def ask_an_op_of_a_user_with_levels():
    from megengine.core.tensor.utils import subgraph_fn

    @subgraph_fn("ScaledAdd", dtype=np.float32, device=Tensor(0.0).device, nr_inputs=2, gopt_level=None)
    def scaled_add(inputs, f, c):
        x, y = inputs[0:2]
        return (f("+", f("*", x, c(2)), y),), (True,)

    (z,) = scaled_add(Tensor([1.0, 2.0]), Tensor([10.0, 20.0]))
    return z


def ask_padded_images():
    from megengine.data.transform.vision import functional as VF

    image = np.arange(12, dtype="uint8").reshape(2, 2, 3)
    whole, half = VF.pad(image, size=1, value=(1, 2, 3)), VF.pad(image, (1, 2), (0.5, 1, 2))
    return whole, half, VF.pad(image, (1, 2, 3, 4), 7).shape


def ask_what_a_remote_receive_takes():
    import inspect

    from megengine.functional.distributed import remote_recv

    return list(inspect.signature(remote_recv).parameters)[:3]


def ask_an_activation_by_its_module():
    from megengine.module.activation import ReLU

    return ReLU()(Tensor([-1.0, 2.0])), ReLU is M.ReLU


def ask_a_norm_over_layers():
    w, b = Tensor([1.0, 2.0, 3.0, 4.0]), Tensor([0.0, 1.0, 0.0, 1.0])
    return F.layer_norm(Tensor(X), (4,), True, w, b), F.layer_norm(Tensor(X), (3, 4), False)


def ask_a_reflected_border():
    return F.pad(Tensor(X[0]), ((1, 2), (2, 1)), mode="reflect")


def ask_a_folder_of_images():
    import cv2

    from megengine.data.dataset.vision import ImageFolder

    with tempfile.TemporaryDirectory() as root:
        for kind, value in (("cat", 10), ("dog", 200)):
            os.mkdir(os.path.join(root, kind))
            for i in range(2):
                cv2.imwrite(os.path.join(root, kind, f"{i}.png"), np.full((2, 3, 3), value + i, "uint8"))
        plain, named = ImageFolder(root), ImageFolder(root, class_name=True)
        image, label = plain[3]
        return len(plain), image.shape, int(image[0, 0, 0]), int(label), named[0][1], plain.class_dict


def ask_whether_there_is_a_group():
    from megengine.distributed.group import is_distributed

    return is_distributed()


def ask_a_convolution_with_its_norm():
    layer = M.ConvBn2d(in_channels=1, out_channels=2, kernel_size=2)
    layer.eval()
    layer.conv.weight[...] = np.arange(8, dtype="float32").reshape(2, 1, 2, 2)
    layer.conv.bias[...] = np.array([1, 2], "float32").reshape(1, 2, 1, 1)
    layer.bn.running_mean[...] = np.full(layer.bn.running_mean.shape, 3, "float32")
    return layer(Tensor(IMAGE)), sorted(layer.state_dict())


def ask_an_elementwise_function_by_its_mode():
    from megengine.core.tensor.array_method import _elwise

    a, b = Tensor([-1.0, 2.0]), Tensor([3.0, 4.0])
    return _elwise(a, b, mode="add"), _elwise(a, mode="relu"), _elwise(a, b, mode="max"), _elwise(a, 2, mode="mul")


def ask_bounds_of_an_initializer():
    w = Tensor(np.zeros((64, 32), "float32"))
    bounds = []
    for nonlinearity, a in (("relu", 0), ("leaky_relu", 1), ("tanh", 0), ("sigmoid", 0)):
        M.init.msra_uniform_(w, a=a, mode="fan_in", nonlinearity=nonlinearity)
        bounds.append(round(float(np.abs(w.numpy()).max()), 2))
    return bounds, bool(w.numpy().std() > 0)


def ask_a_swish():
    return F.silu(Tensor([-2.0, 0.0, 3.0]))


def ask_a_repeated_border():
    return F.nn.pad(Tensor(X[0]), ((1, 1), (0, 2)), mode="edge"), F.nn.pad(Tensor(X[0]), ((1, 1),), "constant", 2.0).shape


def ask_a_deformed_convolution():
    layer = M.DeformableConv2d(1, 2, kernel_size=3, padding=1)
    layer.weight[...] = np.arange(18, dtype="float32").reshape(2, 1, 3, 3)
    offset, mask = np.zeros((1, 18, 4, 4), "float32"), np.ones((1, 9, 4, 4), "float32")
    offset[:, 1] = 0.5
    return layer(Tensor(IMAGE), Tensor(offset), Tensor(mask * 0.5)), layer.bias is None
