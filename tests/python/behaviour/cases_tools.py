import io

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.core._imperative_rt import CompNode
from megengine.core._imperative_rt.core2 import apply
from megengine.core._trace_option import use_symbolic_shape
from megengine.core.autodiff.grad import Function, Grad
from megengine.core.tensor import megbrain_graph as G
from megengine.core.tensor.utils import subgraph
from megengine.functional import debug_param
from megengine.jit import GraphOptimizationConfig, trace
from megengine.utils import comp_graph_tools as cgtools
from megengine.utils.network import Network
from megengine.utils.network_node import *  # noqa: F403  # programs write it so

X = np.arange(6, dtype="float32").reshape(2, 3)


def dumped():
    model = trace(lambda a, b: (a + b) * 2, symbolic=True, capture_as_const=True)
    model(Tensor(X), Tensor(X))
    file = io.BytesIO()
    model.dump(file, arg_names=["a", "b"], output_names=["o"], optimize_for_inference=False)
    file.seek(0)
    return file


def ask_texts_of_strategies():
    told = []
    for words in ("PROFILE", "PROFILE_REPRODUCIBLE", "HEURISTIC_REPRODUCIBLE", "HEURISTIC"):
        debug_param.set_execution_strategy(words)
        told.append((str(debug_param.get_execution_strategy()), repr(debug_param.get_execution_strategy())))
    return told, str(debug_param.Strategy.HEURISTIC | debug_param.Strategy.PROFILE)


def ask_text_of_fusion_options():
    config = GraphOptimizationConfig()
    before = repr(config)
    config.jit_fuse_dimshuffle, config.jit_fuse_reduce = True, False
    return before, repr(config)


def ask_a_graph_with_other_inputs():
    outputs, nodes, replaced = G.load_graph(dumped()).output_vars_list, [], {}
    for var in cgtools.get_dep_vars(outputs, "Host2DeviceCopy"):
        nodes.append(G.InputNode(device="xpux", dtype=var.dtype, shape=var.shape, graph=var.graph))
        replaced[var] = nodes[-1].outputs[0]
    results = [G.OutputNode(var) for var in cgtools.replace_vars(outputs, replaced)]
    run = results[0].outputs[0].graph.compile([node.outputs[0] for node in results])
    for factor, node in enumerate(nodes):
        node.set_value(Tensor(X * factor)._dev_tensor())
    run.execute()
    run.wait()
    return [node.get_value().numpy() for node in results]


def ask_variables_by_name():
    outputs = G.load_graph(dumped()).output_vars_list
    return [var.name for var in cgtools.find_vars_by_name(outputs, ["b", "a"])]


def ask_a_name_that_no_variable_has():
    return cgtools.find_vars_by_name(G.load_graph(dumped()).output_vars_list, ["c"])


def ask_a_blacklist_of_no_input():
    return Network.load(dumped()).reset_batch_size(4, blacklist=["c"])


def ask_classes_of_operators_by_star():
    return Elemwise.__name__, ImmutableTensor.__name__, VarNode.__name__  # noqa: F405  # by the star


def ask_sizes_of_dtr():
    before, told = mge.dtr.eviction_threshold, []
    for size in ("5GB", "1.5MB", 100):
        mge.dtr.eviction_threshold = size
        told.append(mge.dtr.eviction_threshold)
    mge.dtr.eviction_threshold = before
    return told


@subgraph("fma", np.float32, CompNode("cpu0"), 3)
def fma(inputs, f, c):
    x, scale, shift = inputs[:3]
    return (f("+", f("*", x, scale), shift),), (True,)


def ask_an_op_composed_of_others():
    x = Tensor(X)
    return apply(fma(), x, x, x)


def gradients(compute, *tensors):
    found = []
    with Grad() as grad:
        grad.wrt(*tensors, callback=found.append)
        y = compute()
        grad(y, F.ones_like(y))
    return found


def ask_gradients_by_callbacks():
    x, scale, unused = Tensor([1.0, 2.0]), Tensor([3.0]), Tensor([4.0])
    return gradients(lambda: x * x * scale, x, scale, unused), x.grad, Grad("inner").wrt is not None, Function is mge.autodiff.Function


def ask_second_derivatives_by_callbacks():
    x = Tensor([2.0])
    return gradients(lambda: gradients(lambda: x * x * x, x)[0], x)


def ask_how_shapes_are_seen():
    seen = [use_symbolic_shape()]
    for options in ({"symbolic": True}, {}, {"symbolic": True, "symbolic_shape": False}):
        traced = trace(lambda x: seen.append((use_symbolic_shape(), type(x.shape).__name__)) or x + 1, **options)
        traced(Tensor(X))
        traced(Tensor(X))
    return seen


def traced_with_arrays(function, *arrays, **options):
    traced, results = trace(function, **options), []
    for array in arrays:
        try:
            results.append(traced(np.float32(array)))
        except Exception as error:
            results.append(type(error).__name__)
    return results


def ask_arrays_as_arguments_of_traces():
    x = Tensor([1.0])
    made = [traced_with_arrays(lambda a: Tensor(a) * 2, [1], [2], [3], symbolic=flag) for flag in (False, True)]
    return made, traced_with_arrays(lambda a: x * a, [1], [1], [1], [2])
