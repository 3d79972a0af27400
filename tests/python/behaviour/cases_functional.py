import numpy as np

import megengine.functional as F
import megengine.module as M
from megengine import Parameter, amp, tensor
from megengine.autodiff import Function, GradManager

X = (np.arange(24) * 7 % 11).astype("float32").reshape(2, 3, 4)


def ask_concat_takes_scalars():
    return F.concat([tensor(1.0), tensor([2.0, 3.0]), tensor(4.0)])


def ask_concat_of_scalars_alone():
    return F.concat([tensor(1.0), tensor(2.0)])


def ask_concat_of_one_scalar():
    return F.concat([tensor(1.0)])


def ask_topk_beyond_the_extent():
    return F.topk(tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]]), 5, descending=True)


def ask_surplus_gradients():
    class Twice(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 2, dy * 3

    x = tensor([1.0, 2.0])
    with GradManager().attach([x]) as gm:
        gm.backward(Twice()(x).sum())
    return x.grad


def ask_argmax_over_axes():
    return F.argmax(tensor(X), axis=(-1, -2)), F.argmin(tensor(X), axis=(0, 2)), F.argmax(tensor(X), axis=(2, 1), keepdims=True)


def ask_argmax_over_neighbours():
    return F.argmax(tensor(X), axis=(0, 1))


def ask_argmax_over_all_axes():
    return F.argmax(tensor(X), axis=(0, 1, 2))


def ask_cross_entropy_with_numpy_labels():
    return F.nn.cross_entropy(tensor(X[0]), np.array([0, 3, 1], "int32"))


def ask_a_loaded_tensor_says_where_it_lies():
    import io

    import megengine as mge

    file = io.BytesIO()
    mge.save(tensor([1.0], device="cpu0"), file)
    file.seek(0)
    return str(mge.load(file).device)


def ask_batch_norm_of_an_empty_batch():
    import megengine.module as M

    bn = M.BatchNorm2d(3)
    y = bn(tensor(np.zeros((0, 3, 2, 2), "float32")))
    return y, bn.running_mean, bn.running_var


def ask_batch_norm_of_an_empty_batch_in_eval():
    import megengine.module as M

    bn = M.BatchNorm2d(3)
    bn.eval()
    return bn(tensor(np.zeros((0, 3, 2, 2), "float32")))


def ask_sequential_of_functions():
    import megengine.module as M

    return M.Sequential(F.relu, lambda x: x * 2)(tensor([-1.0, 2.0]))


def ask_sequential_of_ordered_dicts():
    from collections import OrderedDict

    import megengine.module as M

    net = M.Sequential(OrderedDict(a=M.ReLU(), b=M.Sigmoid()))
    return [name for name, _ in net.named_children()], net(tensor([-1.0, 2.0])), len(net)


def ask_sequential_of_several_ordered_dicts():
    from collections import OrderedDict

    import megengine.module as M

    net = M.Sequential(OrderedDict(a=M.ReLU()), OrderedDict(b=M.Sigmoid()))
    return [name for name, _ in net.named_children()], net(tensor([-1.0, 2.0]))


def ask_fans():
    import megengine.module as M
    from megengine.module.init import calculate_fan_in_and_fan_out as fans

    return [
        fans(tensor(np.zeros(shape, "float32")))
        for shape in ((4, 6), (4, 6, 3), (4, 6, 3, 2), (2, 2, 3, 3, 5), (4, 6, 3), (2, 2, 3, 3, 5, 2), (7, 3, 3, 3, 3))
    ], [fans(M.Conv2d(4, 8, 3, groups=2).weight), fans(M.Conv3d(4, 8, 3).weight), fans(M.ConvTranspose2d(4, 8, 3).weight)]


def ask_dump_of_a_function_without_results():
    import io

    from megengine.jit import trace

    f = trace(lambda x: None, capture_as_const=True)
    f(tensor([1.0]))
    f.dump(io.BytesIO())


def ask_log_sum_exp_when_traced():
    from megengine.jit import trace

    f = trace(lambda x: F.log(F.sum(F.exp(x), axis=1)), symbolic=True, opt_level=2)
    x = tensor([[1000.0, 1001.0], [-1000.0, -1000.0]])
    f(x)
    return f(x)


def ask_dump_of_a_batch_norm_in_training():
    import io

    import megengine.module as M
    from megengine.jit import trace

    bn = M.BatchNorm2d(3)
    f = trace(lambda x: bn(x), capture_as_const=True)
    f(tensor(np.ones((2, 3, 2, 2), "float32")))
    f.dump(io.BytesIO())


def ask_precisions_of_functions_under_autocast():
    image = tensor(np.linspace(0.5, 1.5, 96).reshape(2, 3, 4, 4).astype("float32"))
    layer = M.BatchNorm2d(3)
    layer.eval()
    found = []
    for x in (image, image.astype("float16")):
        row = x.reshape(2, 48)
        with amp.autocast():
            results = [
                F.sqrt(x), F.div(x, 2), F.pow(x, 2), F.hsigmoid(x), F.normalize(x, axis=1), F.norm(row, 2, 1), F.exp(x), F.relu(x), x + x,
                F.vision.interpolate(x, scale_factor=2), F.vision.interpolate(x, scale_factor=2, mode="nearest"), layer(x), F.matmul(row, row.transpose(1, 0)),
            ]  # fmt: skip
        found.append([np.dtype(result.dtype).name for result in results])
    return found


def ask_ctc_losses_of_frames_that_are_too_few_and_of_blanks_as_labels():
    draw = np.random.RandomState(3)
    found = []
    for time, lengths, label, blank in (
        (2, [2], [1, 1], 0), (3, [3], [1, 2], 2), (3, [3], [2, 2], 2), (5, [5, 2], [0, 1, 1, 0, 1, 2], 1), (6, [3, 1], [2, 1, 0, 0, 1, 2], 0), (1, [1], [2], 0),
    ):  # fmt: skip
        each = len(label) // len(lengths)
        pred = draw.uniform(0.1, 1, (time, len(lengths), 3)).astype("float32")
        pred[-1, -1, 1] = 0
        x = Parameter(pred / pred.sum(-1, keepdims=True))
        with GradManager().attach(x) as gm:
            loss = F.nn.ctc_loss(x, tensor(lengths, "int32"), tensor(label, "int32"), tensor([each] * len(lengths), "int32"), blank=blank, reduction="none")
            gm.backward(loss.sum())
        found.append((loss, x.grad))
    return found


def ask_texts_of_tensors():
    floats = [1e-5, 3.14159265, 2.0, 1e8, [1e-5, 1.0], np.arange(3000.0), [[1.5, 2], [3, 4e-4]], [np.nan, np.inf], 1234567.0]
    others = [np.array([1, 2], "int32"), np.array(7, "int32"), np.array([True, False]), np.arange(40, dtype="int32").reshape(2, 20), np.array([1.5, 3e-3], "float16")]
    return [repr(tensor(np.array(v, "float32"))) for v in floats] + [repr(tensor(v)) for v in others] + [str(tensor([1.25, 1e-7]))]


def ask_precisions_of_operators_under_autocast():
    found = []
    for x in (tensor([1.5, 2.5]), tensor([1.5, 2.5], dtype="float16")):
        with amp.autocast():
            y = x * 1
            y /= 2
            z = x * 1
            z **= 2
            results = [x / 2, 2 / x, x / x, x**2, 2**x, x**x, x**0.5, x * x, x - x, x // 2, x % 2, -x, y, z]
        found.append([np.dtype(result.dtype).name for result in results])
    return found




def raised(call):
    try:
        return call()
    except Exception as error:
        return isinstance(error, RuntimeError), isinstance(error, AssertionError), str(error).splitlines()[0] if isinstance(error, (TypeError, AssertionError)) else ""


def ask_errors_of_shapes_and_axes_that_do_not_fit():
    x, y, image, weight = (tensor(np.ones(shape, "float32")) for shape in ((2, 3), (4, 5), (1, 3, 4, 4), (2, 4, 3, 3)))
    calls = [
        lambda: F.reshape(x, (4, 4)), lambda: x.reshape(5, -1), lambda: x.reshape(tensor([4, 4])), lambda: x + y, lambda: F.where(x > 0, x, y), lambda: F.matmul(x, x),
        lambda: x @ x, lambda: F.concat([x, y], 0), lambda: F.concat([x, x], 5), lambda: F.stack([x, y]), lambda: F.conv2d(image, weight), lambda: F.broadcast_to(x, (3, 3)),
        lambda: F.squeeze(x, 0), lambda: F.squeeze(x, 5), lambda: F.transpose(x, (0, 1, 2)), lambda: F.expand_dims(x, 5), lambda: F.sum(x, axis=5), lambda: F.max(x, axis=-4),
        lambda: F.mean(x, axis=3), lambda: F.linear(x, y), lambda: F.max_pool2d(x, 2),
    ]  # fmt: skip
    return [raised(call) for call in calls]


def ask_errors_of_none_and_of_an_axis_named_twice():
    x = tensor(np.ones((2, 3), "float32"))
    calls = [lambda: x + None, lambda: None + x, lambda: F.add(x, None), lambda: F.maximum(x, None), lambda: F.sum(x, axis=(-1, 1)), lambda: F.max(x, axis=(1, -1))]
    return [raised(call) for call in calls]
