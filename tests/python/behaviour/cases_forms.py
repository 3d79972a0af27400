"""Forms of arguments and results that unit tests of programs meet: whole floats as sizes, tuples, indices, names from the inside."""

import copy
import pickle

import numpy as np

import megengine.functional as F
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager

X = (np.arange(24) * 7 % 11).astype("float32").reshape(2, 3, 4)
IMAGE = (np.arange(2 * 7 * 6) * 7 % 11).astype("float32").reshape(1, 2, 7, 6)


def ask_pools_whose_windows_overlap():
    x = Tensor(IMAGE)
    return F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (2, 5)), M.AdaptiveAvgPool2d((7, 4))(x), M.AdaptiveMaxPool2d(3)(x)


def ask_gradients_of_windows_that_overlap():
    x = Tensor(IMAGE)
    with GradManager().attach([x]) as gm:
        gm.backward((F.adaptive_avg_pool2d(x, (3, 4)) ** 2).sum())
    return x.grad


def ask_sizes_that_are_whole_floats():
    x = Tensor(X)
    made = F.zeros((4 / 2, 3)), F.full((2.0,), 1.5), F.broadcast_to(x[0, 0], (6 / 2, 4)), x.reshape(6 / 2, 8), F.reshape(x, (2.0, 12))
    pooled = F.max_pool2d(Tensor(IMAGE), 4 / 2), F.avg_pool2d(Tensor(IMAGE), 2, stride=3.0)
    return [y.shape for y in made], pooled, F.topk(x[0], 4 / 2)[1], F.split(x, 8 / 4, axis=2)


def ask_parts_come_in_tuples():
    a, b = F.split(Tensor(X), 2), F.meshgrid(Tensor([1.0, 2.0]), Tensor([3.0]))
    return type(a).__name__, type(F.split(Tensor(X), [1, 2], axis=1)).__name__, type(b).__name__, a, b


def ask_a_scalar_reduced_over_its_only_axis():
    x = Tensor(3.0)
    return F.sum(x, axis=0), F.mean(x, axis=-1), x.max(axis=0), F.sum(x, axis=0, keepdims=True)


def ask_scatter_writes_in_place():
    x = F.zeros((2, 3))
    y = F.scatter(x, 1, Tensor([[0, 2], [1, 0]]), Tensor(X[0, :2, :2]))
    return x, y is x


def ask_axes_that_a_transposition_leaves_out():
    x = Tensor(X[:1, 0])
    return F.transpose(x, (1,)), x.transpose(1), F.transpose(Tensor(X[:, :1]), (2, 0))


def ask_lists_of_index_arrays():
    x = Tensor(X[0])
    pairs = x[[[0, 1], [1, 2]]], x[[(0, 1), (1, 2)]], x[[np.array([0, 1]), np.array([1, 2])]], x[[Tensor([0, 1]), Tensor([1, 2])]]
    return pairs, x[[[0, 1]]], x[[[0, 1], 2]], x[[np.array([2, 0]), 1]], x[[0, 1]]


def ask_prefixes_of_state_dicts():
    net = M.Sequential(M.Linear(2, 3, bias=False))
    return list(net.state_dict(prefix="net.")), list(net.state_dict(prefix="net")), [name for name, _ in net.named_parameters(prefix="net")]


def ask_gradients_by_callbacks():
    from megengine.core.autodiff.grad import Grad

    x, unused, outer, inner = Tensor([-3.0, 4.0]), Tensor([1.0]), [], []
    with Grad() as first:
        first.wrt(x, unused, callback=outer.append)
        with Grad() as second:
            second.wrt(x, callback=inner.append)
            y = x * x * x
            second(y, F.ones(2))
        first([inner[0]], [F.ones(2)])
    return outer, inner


def ask_shapes_as_tensors_outside_of_traces():
    from megengine.core._trace_option import set_symbolic_shape, use_symbolic_shape

    before, used = set_symbolic_shape(True), use_symbolic_shape()
    try:
        shape = Tensor(X).shape
    finally:
        set_symbolic_shape(before)
    return before, used, type(shape).__name__, shape, Tensor(X).shape, use_symbolic_shape()


def ask_helpers_of_operands():
    from megengine.core.tensor.utils import dtype_promotion, get_device, make_shape_tuple

    shapes = make_shape_tuple([2, Tensor(3)]), make_shape_tuple((Tensor([2, 3]), 4)), make_shape_tuple(3)
    dtypes = dtype_promotion([Tensor([1.0]), Tensor([1])]), dtype_promotion([Tensor([1]), 1.5]), dtype_promotion([Tensor([1]), 2])
    return shapes, [dtype.name for dtype in dtypes], get_device((1, Tensor([1.0], device="cpu1"))) == "cpu1"


def ask_an_op_that_a_user_composed():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.tensor.utils import subgraph

    @subgraph("Scaled", np.float32, Tensor(0.0).device, 2)
    def scaled(inputs, f, c):
        x, y = inputs[0:2]
        return (f("+", f("*", x, c(2)), y),), (True,)

    return apply(scaled(), Tensor([1.0, 2.0]), Tensor([10.0, 20.0]))[0]


def ask_elementwise_modes_of_gradients():
    from megengine.core._imperative_rt.core2 import apply
    from megengine.core.ops.builtin import Elemwise

    def at(mode, *operands):
        return apply(Elemwise(mode), *map(Tensor, operands))[0]

    x, dy = [-4.0, -0.6, 0.0, 0.3, 2.5, 7.0], [0.7, 0.2, -0.4, 1.0, 2.0, -3.0]
    two = "ABS ASINH GELU HSIGMOID H_SWISH RELU6 SIGMOID SILU SOFTPLUS TANH".split()
    found = [at(f"{mode}_GRAD", x, dy) for mode in two]
    found += [at("ACOSH_GRAD", [1.5, 2.0], [1.0, 2.0]), at("ATANH_GRAD", [0.5, -0.2], [1.0, 2.0]), at("PRELU_GRAD", x, dy, [0.25] * 6)]
    return found, at("SWITCH_GT0", x, dy), at("CLIP", x, [-1.0] * 6, [3.0] * 6), at("COND_LEQ_MOV", x, dy, dy), at("COND_LT_MOV", x, x, dy)


def ask_states_of_packed_layers():
    # The original trains `_flatten_weights`, and computes with it whatever its cells hold.
    def numbers(*shape):
        return np.cos(np.arange(np.prod(shape))).astype("float32").reshape(shape)

    found = []
    for cls, layers, columns in ((M.LSTM, 1, 7), (M.LSTM, 2, 36), (M.RNN, 2, 36)):
        net = cls(2, 3, num_layers=layers, bidirectional=layers == 2)
        state = {name: value for name, value in net.state_dict().items() if name != "_flatten_weights"}
        net.load_state_dict({**state, "_flatten_weights": numbers(12 if cls is M.LSTM else 3, columns)})
        found.append(net(Tensor(numbers(4, 1, 2)))[0])
    attention = M.MultiHeadAttention(4, 2)
    attention.load_state_dict({"io_weight_bias": numbers(1, 80)})
    attention.eval()
    return found, attention(*[Tensor(numbers(2, 3, 4))] * 3)[0]


class Held(M.Module):
    def __init__(self):
        super().__init__()
        self.z, self.x, self.p, self.a = M.Linear(2, 2), 3, Parameter([1.0]), M.ReLU()
        self.l, self.d, self.e, self.t, self.n = [M.ReLU(), M.ReLU()], {"q": M.ReLU()}, [], (1, 2), None

    def forward(self, x):
        return x


def ask_modules_that_a_module_lists():
    m = Held()
    seen = [list(m._modules)]
    m.e.append(M.ReLU())
    seen.append(repr(m))
    m.n, m.a = M.ReLU(), 3
    seen.append(list(m._modules))
    m.a = M.ReLU()
    del m.z
    m.l = [1]
    seen += [list(m._modules), [name for name, _ in m.named_modules()], list(M.Sequential(M.ReLU(), M.Linear(2, 2))._modules)]
    m._modules.remove("n")
    seen += [repr(m), [name for name, _ in m.named_modules()]]
    m._modules = ["d"]
    m.k = M.ReLU()
    copied = copy.deepcopy(m)
    copied.more = M.ReLU()
    return [*seen, repr(m), m._modules, copied._modules, pickle.loads(pickle.dumps(m))._modules]


def ask_the_text_of_a_module_that_lists_what_is_not_there():
    m = Held()
    m._modules.append("nothing")
    return repr(m)
