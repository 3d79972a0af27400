import io
import os
import tempfile

import numpy as np

import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
import megengine.traced_module as tm
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.network import Network, as_oprnode, as_varnode, set_symbolic_shape
from megengine.utils.network_node import Elemwise

X = Tensor(np.cos(np.arange(2 * 3 * 6 * 6)).astype("float32").reshape(2, 3, 6, 6))


def filled(module):
    for i, (_, p) in enumerate(sorted(module.named_parameters())):
        p[...] = Tensor((np.sin(np.arange(np.prod(p.shape)) + i) * 0.5).astype("float32").reshape(p.shape))
    for i, (_, p) in enumerate(sorted(module.named_buffers())):
        p[...] = Tensor((np.abs(np.sin(np.arange(np.prod(p.shape)) + i)) + 0.5).astype("float32").reshape(p.shape))
    return module


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 3, 3, padding=1)
        self.bn = M.BatchNorm2d(3)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Shared(M.Module):
    def __init__(self):
        super().__init__()
        self.b = Block()

    def forward(self, x):
        return self.b(self.b(x))


class Scaled(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = M.Conv2d(3, 3, 1), M.Conv2d(3, 4, 1)

    def forward(self, x):
        return self.last(self.conv(x) * 2 + 1)


class Quantizable(M.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.conv, self.one = M.QuantStub(), M.ConvBnRelu2d(3, 4, 3), M.Conv2d(4, 4, 1)
        self.add, self.dequant = M.Elemwise("add"), M.DequantStub()

    def forward(self, x):
        x = self.conv(self.quant(x))
        return self.dequant(self.add(x, self.one(x))).mean(axis=(2, 3))


def traced(net):
    net.eval()
    return tm.trace_module(net, X)


def optimized(net, *passes):
    return tm.optimize(traced(filled(net)), list(passes))(X).sum()


def ask_passes_through_a_shared_block():
    return optimized(Shared(), "FuseConvBn"), optimized(Shared(), "BackwardFoldScale")


def ask_scales_folded():
    net = tm.optimize(traced(filled(Scaled())), ["BackwardFoldScale"])
    return net(X).sum(), len(net.graph.get_method_by_type("__mul__").as_list()), np.abs(net.conv.weight.numpy()).sum()


def ask_quantization_aware_modules_inside():
    net = Q.quantize_qat(filled(Quantizable()), qconfig=Q.ema_fakequant_qconfig)
    net(X)
    inside = traced(net)
    return np.allclose(inside(X).numpy(), net(X).numpy()), inside(X), sorted(type(child).__name__ for child in inside.children())


def dumped(function, *shapes, **options):
    model = trace(function, symbolic=True, capture_as_const=True)
    model(*(Tensor(np.arange(np.prod(shape)).reshape(shape).astype("float32")) for shape in shapes))
    file = io.BytesIO()
    model.dump(file, arg_names=["a", "b"][: len(shapes)], **{"optimize_for_inference": False, **options})
    file.seek(0)
    return file


def chain():
    return Network.load(dumped(lambda x: F.relu(x * 2) + 1, (2, 3)))


def saved_again(net, **options):
    file = io.BytesIO()
    net.dump(file, **options)
    file.seek(0)
    return Network.load(file)


def kinds(net):
    return sorted(type(opr).__name__ for opr in net.all_oprs)


def ask_one_network_behind_another():
    first, second = chain(), Network.load(dumped(lambda x: x - 3, (2, 3), output_names=["o"]))
    second.replace_vars({second.input_vars[0]: first.output_vars[0]})
    return kinds(second), len(second.input_vars), [v.name for v in second.output_vars]


def ask_an_output_of_another_network():
    first, second = chain(), Network.load(dumped(lambda x: x - 3, (2, 3), output_names=["o"]))
    first.add_output(second.output_vars[0])
    return kinds(first), len(first.output_vars)


def ask_made_constants():
    net = chain()
    last = net.output_vars[0]
    made = last + net.make_const(np.array([1.0, 2.0, 3.0], "float32"), name="c")
    made.name = "w"
    net.add_output(made)
    net.remove_output(last)
    kept = Network().make_const(np.ones(3, "float32"), name="c", device="cpu1")
    return [v.name for v in saved_again(net).output_vars], kept.name, kept.shape, str(kept.dtype), type(kept.owner).__name__


def ask_a_made_input():
    net = Network()
    image, index = net.make_input_node((2, 3), "float32", name="img", device="cpu1"), net.make_input_node((2, 3), np.int32)
    net.add_output(image * 2)
    return image.name, image.shape, str(index.dtype), image.owner.device.physical_name


def ask_metadata():
    net = Network.load(dumped(lambda x: x * 2, (2, 3), user_info={"a": 1}))
    before = net.metadata
    net.modify_opr_names(lambda name: "q_" + name)
    renamed = all(opr.name.startswith("q_") for opr in net.all_oprs)
    after = saved_again(net, user_info="text").metadata
    return before, renamed, after["user_info"], after["graph_modified"], saved_again(net, enable_metadata=False).metadata


def ask_symbolic_shapes():
    net = chain()
    told = set_symbolic_shape(True), set_symbolic_shape(False), set_symbolic_shape(False), net.output_vars[0].shape
    return told, as_varnode(net.input_vars[0].owner).name, type(as_oprnode(net.input_vars[0])).__name__


def ask_filters():
    net = chain()
    modes = sorted(opr.params["mode"] for opr in net.get_opr_by_type(Elemwise, unique=False))
    return modes, net.opr_filter.as_count(), net.var_filter.as_count(), net.data_providers_filter.as_count(), kinds(net)


def refusal(function, **options):
    try:
        return dumped(function, (2,), **options) and "written"
    except Exception as error:
        return type(error).__name__


def ask_what_dump_refuses():
    refusals = [refusal(f) for f in (lambda x: x * 2, lambda x: x, lambda x: F.dropout(x, 0.5, training=False), lambda x: None)]
    unknown = [refusal(lambda x: x * 2, optimize_for_inference=True, **{name: True}) for name in ("foo", "enable_foo")]
    return refusals, unknown, refusal(lambda x: x * 2, output_names=["a", "b"])


def ask_dump_without_constants_or_a_call():
    errors = []
    for constants in (True, False):
        f = trace(lambda x: x * 2, symbolic=True, capture_as_const=constants)
        try:
            f.dump(io.BytesIO())
        except Exception as error:
            errors.append(type(error).__name__)
    return errors


def ask_persistent_cache():
    from megengine.utils.persistent_cache import PersistentCacheOnServer

    folder = os.environ["MGE_FASTRUN_CACHE_DIR"] = tempfile.mkdtemp()  # stays: the original writes into it when it ends
    cache = PersistentCacheOnServer()
    before = cache.get("kind", "key"), cache.get_cache_dir() == folder, cache.get_redis_config()
    cache.put("kind", "key", b"value")
    cache.flush()
    other = PersistentCacheOnServer()
    del os.environ["MGE_FASTRUN_CACHE_DIR"]
    return before, cache.get("kind", "key"), cache.get("kind", b"key"), other.get("kind", "key"), other.get("other", "key")
