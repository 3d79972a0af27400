import copy
import io

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.utils.network
from megengine import Tensor, amp

IMAGE = np.arange(2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)
UNIT = np.ones((4, 3, 1, 1), "float32")


def on_cpu1():
    return Tensor([1.0, 2.0], device="cpu1")


def places(*tensors):
    return [x.device.physical_name for x in tensors]


def ask_a_tensor_says_on_which_cpu_it_is():
    x = on_cpu1()
    same = x.device == "cpu1", x.device == "cpu0", x.device == "cpu1:0", x.device == Tensor([1.0]).device
    return str(x.device), repr(x.device), repr(x), x.device.logical_name, x.device.physical_name, same


def ask_names_of_cpus():
    names = "cpu1", "cpu0:1", "cpux", "xpu1", "cpu99", "multithread1:0"
    return places(*(Tensor([1.0], device=name) for name in names))


def ask_made_on_a_cpu():
    a, b = Tensor([1.0]), Tensor([2.0])
    made = F.eye(2, device="cpu1"), F.zeros(3, device="cpu1"), F.ones((3,), device="cpu1"), F.full((3,), 2, device="cpu1")
    return places(*made, F.linspace(0, 1, 3, device="cpu1"), F.concat([a, b], device="cpu1"), F.stack([a, b], device="cpu1"), a)


def ask_results_are_where_their_operands_are():
    x = on_cpu1()
    results = x + 1, 1 - x, -x, x > 1, x[0], x.sum(), x.astype("int32"), x.detach(), F.relu(x), F.concat([x, x]), F.zeros_like(x)
    several = *F.split(x, 2), *F.topk(x, 1), F.where(x > 1, x, x), F.matmul(x.reshape(1, 2), x.reshape(2, 1)), x + np.ones(2, "float32")
    return places(*results, *several)


def ask_copies_and_moves():
    x, y = on_cpu1(), Tensor([1.0, 2.0])
    z = Tensor([1.0, 2.0])
    z[...] = x
    z += 1
    return places(y.to("cpu1"), x.to("cpu0"), F.copy(y, "cpu1"), F.copy(x, "cpu0"), F.copy(x), Tensor(x), mge.Parameter(x), z)


def ask_gradients_and_layers_on_a_cpu():
    x, layer = on_cpu1(), M.Linear(2, 3)
    for p in layer.parameters():
        p._reset(p.to("cpu1"))
    with mge.autodiff.GradManager().attach([x]) as gm:
        gm.backward((x * x).sum())
    return places(x.grad, *layer.parameters(), layer(F.zeros((1, 2), device="cpu1")), copy.deepcopy(layer).weight)


def ask_traced_results_on_a_cpu():
    f = mge.jit.trace(lambda x: x * 2, symbolic=True)
    g = mge.jit.trace(lambda x: x * 2, symbolic=True, without_host=True)
    f(on_cpu1()), g(on_cpu1())
    return places(f(on_cpu1()), g(on_cpu1()))


def ask_saved_tensors_of_a_cpu():
    file = io.BytesIO()
    mge.save(on_cpu1(), file)
    loaded = []
    for where in (None, "cpu2", {"cpu1": "cpu3"}, lambda name: "cpu4"):
        file.seek(0)
        loaded.append(mge.load(file, map_location=where))
    return places(*loaded)


def logical(*tensors):
    return [(x.device.logical_name, str(x.device), repr(x.device)) for x in tensors]


def ask_a_device_is_called_as_the_program_calls_it():
    x = Tensor([1.0], device="xpu1")
    return logical(Tensor([1.0]), *(Tensor([1.0], device=name) for name in ("xpux", "cpu0", "cpux", "cpu0:1", "multithread2")), x, x + 1, F.relu(x))


def failure(program):
    try:
        return program()
    except (RuntimeError, ValueError) as error:
        return isinstance(error, RuntimeError), isinstance(error, ValueError)


def ask_two_cpus_do_not_mix():
    pairs = [(Tensor([1.0, 2.0], device=a), Tensor([1.0, 2.0], device=b)) for a, b in (("cpu0", "cpu1"), ("xpux", "cpu0"), ("cpux", "cpu0"), ("cpu0", "cpu0:1"))]
    return [failure(lambda x=x, y=y: x + y)[0] for x, y in pairs]


def ask_two_cpus_are_not_joined():
    return [failure(lambda f=f: f([Tensor([1.0], device="cpu0"), Tensor([1.0], device="cpu1")]))[1] for f in (F.concat, F.stack)]


def ask_saved_tensors_keep_the_name_of_their_device():
    file = io.BytesIO()
    mge.save([Tensor([1.0], device=name) for name in ("cpu0", "cpux", "xpux", "cpu1")], file)
    loaded = []
    for where in (None, {"cpu0": "cpu1"}, "cpu0"):
        file.seek(0)
        loaded += mge.load(file, map_location=where)
    return logical(*loaded)


def ask_constants_of_a_network_lie_where_it_says():
    net = mge.utils.network.Network()
    a, b = net.make_const(np.ones(2, "float32"), device="cpu1"), net.make_const(np.ones(2, "float32"))
    x = net.make_input_node((2,), "float32", device="cpu2")
    return logical(a, b, x, a + 1, x * 2)


def ask_the_default_may_be_another_cpu():
    mge.set_default_device("cpu3")
    try:
        made = Tensor([1.0]), F.zeros(2), M.Linear(2, 2).weight, mge.random.uniform(size=(2,)), Tensor([1.0], device="cpu0")
        return places(*made), mge.get_default_device()
    finally:
        mge.set_default_device("xpux")


def ask_generators_have_a_device_of_their_own():
    rng, other = mge.random.RNG(seed=1, device="cpu1"), mge.random.RNG(seed=1, device="cpu2")
    draws = rng.uniform(size=(2,)), rng.normal(size=(2,)), rng.permutation(3), other.uniform(size=(2,)), mge.random.uniform(size=(2,))
    mge.random.seed(7)
    first = mge.random.uniform(size=(3,)).numpy()
    rng.uniform(size=(5,))
    mge.random.seed(7)
    rng.uniform(size=(2,))
    return places(*draws), np.array_equal(first, mge.random.uniform(size=(3,)).numpy())


def nhwc():
    return Tensor(IMAGE, format="nhwc")


def told(x):
    return x.format, tuple(x.shape), float(x.numpy().ravel()[-1])


def ask_formats_of_tensors():
    x, y, z = Tensor(IMAGE), Tensor(IMAGE), Tensor(IMAGE)
    z.format = "nhwc"
    converted = [amp.convert_tensor_format(x), amp.convert_tensor_format(y, inplace=False), amp.convert_tensor_format(Tensor(IMAGE[0]))]
    return [told(t) for t in (nhwc(), x, y, z, Tensor(nhwc()), mge.Parameter(IMAGE, format="nhwc"), *converted)]


def ask_formats_follow_elementwise_functions():
    x, y = nhwc(), Tensor(IMAGE)
    results = -x, x + 1, x + y, y + x, x + Tensor(1.0), x**2, F.relu(x), F.exp(x * 0), F.clip(x, 0, 1), F.gelu(x), F.sigmoid(x)
    return [told(t) for t in (*results, x.detach(), x.astype("float16"), F.copy(x), x.to("cpu0"), F.dropout(x, 0.5, False))]


def ask_formats_follow_windows():
    x = nhwc()
    pooled = F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (2, 2))
    return [told(t) for t in (*pooled, F.conv2d(x, Tensor(UNIT, format="nhwc")))]


def ask_formats_follow_what_moves_elements():
    x, y = nhwc(), Tensor(IMAGE)
    resized = F.vision.interpolate(x, scale_factor=2), F.vision.interpolate(x, scale_factor=2, mode="nearest"), F.vision.interpolate(x, (8, 10))
    joined = F.concat([x, x], axis=1), F.concat([x, y], axis=1), F.concat([y, x], axis=1), x[:1], x[:, :, 1:], x.reshape(2, 3, 5, 4)
    return [told(t) for t in (*resized, *joined)]


def ask_formats_that_end():
    x = nhwc()
    ends = x.reshape(2, 3, 20), x.reshape(-1), F.flatten(x, 1), x.transpose(0, 2, 3, 1), x.sum(axis=1), x.sum(axis=1, keepdims=True)
    x[...] = Tensor(IMAGE)
    return [told(t) for t in (*ends, F.stack([nhwc(), nhwc()]), x)]


def ask_formats_in_a_trace():
    f = mge.jit.trace(lambda x: F.relu(x), symbolic=True)
    return told(f(nhwc())), told(f(nhwc()))


def ask_a_module_in_nhwc():
    module = M.Conv2d(3, 4, 1)
    converted = amp.convert_module_format(module, inplace=False)
    before = module.weight.format, converted.weight.format
    amp.convert_module_format(module)
    return before, module.weight.format, module.bias.format, module(nhwc()).format, module(nhwc()).shape


def ask_formats_of_integers():
    x = Tensor(np.arange(72).reshape(2, 4, 3, 3), dtype="int32", format="nhwc")
    results = x * 2, x + x, x.astype("float32"), x.reshape(2, 4, 9, 1), F.concat([x, x], 1), x[:, :1], -x, x + np.ones((2, 4, 3, 3), "int32"), x.detach()
    ends = x.transpose(0, 2, 3, 1), x.reshape(2, -1), x.sum(1), x.sum(1, keepdims=True)
    return [told(t) for t in (x, *results, *ends)], results[3], results[5]


def ask_formats_of_masks_and_bytes():
    x, y = (Tensor(np.arange(72).reshape(2, 4, 3, 3), dtype=d, format="nhwc") for d in ("bool", "uint8"))
    return [told(t) for t in (x, ~x, y, y.astype("float32"), F.where(x, y.astype("float32"), y.astype("float32") * 0))]


def ask_formats_of_broadcasts():
    x = Tensor(IMAGE[:1], format="nhwc")
    return [told(F.broadcast_to(x, shape)) for shape in ((3, *IMAGE.shape[1:]), x.shape, (2, 3, *IMAGE.shape[1:]))]
