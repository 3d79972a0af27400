"""What a loaded network lists, names and lets itself be told."""

import io

import numpy as np

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.network import Network, set_symbolic_shape

A, B = np.float32([1, 2]), np.float32([3, 4])


def loaded(function, *arrays, **options):
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(*map(Tensor, arrays))
    file = io.BytesIO()
    traced.dump(file, **{"optimize_for_inference": False, **options})
    file.seek(0)
    return Network.load(file)


def ask_numbers_among_the_parameters():
    net = loaded(lambda a, b: (a + b) * 2, A, B)
    found = net.params_filter.as_list()
    return [opr.type for opr in found], [float(opr.numpy()) for opr in found]


def ask_names_of_parameters():
    return sorted(opr.name for opr in loaded(M.Conv2d(1, 2, 3), np.zeros((1, 1, 4, 4), "float32")).params_filter)


def ask_metadata_of_optimized_graphs():
    net = loaded(lambda a: a + 1, A, optimize_for_inference=True)
    return sorted(net.metadata.items())


def ask_dependencies():
    net = loaded(lambda a, b: a + b, A, B)
    before = len(net.all_oprs)
    var = net.input_vars[0] * 3
    given = net.add_dep_oprs(var)
    return type(given).__name__, given[0] is var, len(net.all_oprs) - before


def with_two_inputs(**kw):
    layers = M.Sequential(M.Linear(2, 3), M.ReLU())
    traced = trace(lambda a, b: layers(a) + b, symbolic=True, capture_as_const=True)
    traced(Tensor([[1.0, 2.0]]), Tensor([[1.0, 2.0, 3.0]]))
    return reloaded(traced, arg_names=["a", "b"], **kw)


def reloaded(what, **kw):
    file = io.BytesIO()
    what.dump(file, **kw)
    return Network.load(io.BytesIO(file.getvalue()))


def names_of_inputs(net):
    return sorted((var.name, var.owner.name) for var in net.input_vars)


def ask_names_of_operators_through_files():
    net = with_two_inputs()
    net.modify_opr_names("net")
    once = reloaded(net)
    once.modify_opr_names("net1")
    kept = reloaded(net, keep_opr_name=True)
    products = [opr.name.split("(")[0].lower().replace("_", "") for opr in kept.all_oprs if type(opr).__name__ == "MatrixMul"]
    return names_of_inputs(net), names_of_inputs(once), names_of_inputs(reloaded(once)), products


def ask_names_of_inputs_by_function():
    net = with_two_inputs()
    net.modify_opr_names(str.upper)
    for var in net.input_vars:
        var.owner.name = "q" + var.owner.name
    return names_of_inputs(reloaded(net))


def ask_shapes_as_variables():
    net = with_two_inputs()
    x, out = net.var_filter.name("a").as_unique(), net.output_vars[0]
    before = set_symbolic_shape(True)
    try:
        shape = out.shape
        told = type(shape).__name__, type(shape[0]).__name__, type(shape.shape).__name__, type(x.partial_shape).__name__, x.ndim
        made = F.reshape(out, (out.shape[0], -1)), F.broadcast_to(out[:1, :1], out.shape)
        value = shape.numpy()
    finally:
        set_symbolic_shape(before)
    return before, told, value, [type(var).__name__ for var in made], [var.partial_shape for var in made], x.shape
