"""Files of TracedModules and GraphModules: what is saved comes back, and any reader sees the weights."""

import ast
import collections
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rewriting import changed, opened, saved
from safetensors.numpy import load_file

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
import megengine.traced_module as tm
from megengine import fx
from megengine._files import admitted
from megengine.core.tensor.dtype import qint8, quint8
from megengine.fx._watch import RECORDED
from megengine.module import quantized

pytestmark = pytest.mark.filterwarnings("ignore:.*keeps that name")  # modules held twice, on purpose


def tensor(*shape, seed=0):
    return mge.tensor(np.random.RandomState(seed).rand(*shape).astype(np.float32))


def reloaded(module, **options):
    file = io.BytesIO()
    module.save(file)
    file.seek(0)
    load = fx.load if isinstance(module, fx.GraphModule) else tm.load
    return load(file, **options)


def same(actual, expected):
    np.testing.assert_array_equal(actual.numpy(), expected.numpy())


class Net(M.Module):
    """Convolutions and normalizations, a module used twice, a list of modules, shapes that are read."""

    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 4, 1, bias=False)
        self.bn = M.BatchNorm2d(4)
        self.inner = M.Sequential(M.Conv2d(4, 4, 1), M.LeakyReLU(0.2))
        self.again = [self.inner]
        self.parts = [M.Dropout(0.1), M.Softmax(1)]
        self.scale = mge.Parameter(np.full((1, 4, 1, 1), 0.5, np.float32))
        self.shared = self.scale

    def forward(self, x):
        x = self.bn(self.conv(x)) * self.scale
        x = self.again[0](self.inner(x)) + self.shared
        y = F.concat((x, self.parts[0](x)[:, 1:]), 1)
        return self.parts[1](F.relu(y).reshape(y.shape[0], -1))


def traced(module, *args, **kwargs):
    return tm.trace_module(module, *args, **kwargs)


MAKERS = [fx.symbolic_trace, lambda module: traced(module, tensor(2, 3, 4, 4))]


@pytest.mark.parametrize("make", MAKERS)
def test_a_model_comes_back_whole(make):
    net = Net()
    net.eval()
    module = make(net)
    module.eval()
    back = reloaded(module)
    assert type(back) is type(module) and format(back.graph) == format(module.graph)
    assert [path for path, _ in back.named_tensors()] == [path for path, _ in module.named_tensors()]
    assert [(path, type(m)) for path, m in back.named_modules()] == [
        (path, type(m)) for path, m in module.named_modules()
    ]
    assert not any(m.training for m in back.modules())
    same(back(tensor(5, 3, 6, 6)), module(tensor(5, 3, 6, 6)))
    back.graph.lint()


def test_what_is_shared_stays_shared():
    back = reloaded(traced(Net(), tensor(2, 3, 4, 4)))
    assert back.again[0] is back.inner and back.shared is back.scale
    module = fx.symbolic_trace(Net())
    module.one, module.other = module.bn, module.bn.weight
    back = reloaded(module)
    assert back.one is back.bn and back.other is back.bn.weight


@pytest.mark.parametrize("make", MAKERS)
def test_a_loaded_model_is_edited_and_saved_again(make):
    back = reloaded(make(Net()))
    back.eval()
    x = tensor(2, 3, 4, 4)
    expected = back(x)
    if isinstance(back, fx.GraphModule):
        for node in list(back.graph.nodes):
            if node.target is F.relu:
                node.target = F.sigmoid
        back.recompile()
    else:
        (expr,) = back.graph.get_function_by_type(F.relu)
        expr.func = F.sigmoid
    changed = reloaded(back)(x)
    assert not np.allclose(changed.numpy(), expected.numpy())
    same(changed, back(x))


@pytest.mark.parametrize("make", MAKERS)
def test_any_safetensors_reader_sees_the_weights(make, tmp_path):
    module = make(Net())
    module.save(tmp_path / "net.safetensors")
    found = load_file(tmp_path / "net.safetensors")
    assert list(sorted(found)) == sorted(path for path, _ in module.named_tensors())
    for path, value in module.state_dict().items():
        np.testing.assert_array_equal(found[path].reshape(value.shape), value)


def test_dtypes_and_shapes_come_back(tmp_path):
    class Holder(M.Module):
        def __init__(self):
            super().__init__()
            self.half = mge.tensor(np.ones((2, 3)), dtype="bfloat16")
            self.flags = mge.tensor([True, False])
            self.scalar = mge.tensor(2.5)
            self.empty = mge.tensor(np.zeros((0, 3), np.float32))
            self.number = mge.tensor(np.array([1 + 2j], np.complex64))
            self.small = tensor(2, 2).astype(qint8(0.125))
            self.shifted = tensor(2, 2).astype(quint8(0.1, 7))
            self.table = np.arange(6, dtype=np.int64).reshape(2, 3)
            self.turned = np.arange(6, dtype=np.float64).reshape(2, 3).T

        def forward(self, x):
            return x + self.scalar

    module = traced(Holder(), tensor(2))
    module.table, module.turned = Holder().table, Holder().turned
    back = reloaded(module)
    for path, value in module.named_tensors():
        found = dict(back.named_tensors())[path]
        assert type(found) is type(value) and found.dtype == value.dtype
        assert found.dtype.metadata == value.dtype.metadata and found.shape == value.shape
        np.testing.assert_array_equal(found.numpy(), value.numpy())
    np.testing.assert_array_equal(back.turned, module.turned)
    assert back.table.dtype == np.int64


def test_plain_attributes_come_back_as_they_are():
    values = {
        "numbers": (1, 2.5, -1e300, float("inf"), 2**70, 1j, True, None),
        "containers": {"a": [1, (2,)], 3: {4}, (5, 6): frozenset({7})},
        "ordered": collections.OrderedDict(x=1),
        "text": "ü\n\"'\ud800",
        "raw": b"\x00\xff",
        "places": [slice(1, None), ..., range(3)],
        "scalars": [np.float32(0.1), np.int64(2**40), np.bool_(True), np.complex64(1j)],
        "dtypes": [np.dtype("float16"), qint8(0.3), np.float32, float],
        "function": F.relu,
        "kind": M.Linear,
        "mode": Q.utils.QuantMode.ASYMMERTIC,
        "config": Q.QConfig(Q.MinMaxObserver, None, None, None),
        "place": mge.device.Device("cpu0"),
    }
    module = fx.symbolic_trace(M.Sequential(M.ReLU()))
    vars(module).update(values)
    back = reloaded(module)
    for key, value in values.items():
        assert getattr(back, key) == value and type(getattr(back, key)) is type(value), key
    assert back.dtypes[1].metadata == values["dtypes"][1].metadata
    assert [type(v) for v in back.scalars] == [type(v) for v in values["scalars"]]


# -- quantized models ----------------------------------------------------------------------------


class Quantizable(M.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.conv, self.last = M.ConvBnRelu2d(3, 4, 1), M.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.dequant(self.last(self.conv(self.quant(x))))


def test_quantization_aware_and_quantized_models_come_back():
    x = tensor(2, 3, 4, 4)
    aware = Q.quantize_qat(Quantizable(), qconfig=Q.ema_fakequant_qconfig)
    aware(x)
    aware.eval()
    for module in (traced(aware, x), traced(Q.quantize(aware, inplace=False), x)):
        back = reloaded(module)
        assert format(back.graph, "ip") == format(module.graph, "ip")
        assert list(back.state_dict()) == list(module.state_dict())
        same(back(x), module(x))
    assert isinstance(back.conv, quantized.ConvBnRelu2d)
    observed = reloaded(traced(aware, x))
    Q.quantize(observed)  # scales were kept
    same(observed(x), back(x))


# -- what graphs hold ----------------------------------------------------------------------------


@fx.wrap
def doubled(x):
    return x + x


@tm.wrap
def halved(x, how="exactly"):
    return x / 2


Pair = collections.namedtuple("Pair", ["first", "second"])


class Box:
    def __init__(self, content):
        self.content = content


tm.register_supported_type(Box, lambda box: ([box.content], None), lambda items, aux: Box(*items))


@tm.register_as_builtin
class Opaque(M.Module):
    def __init__(self, times=2):
        super().__init__()
        self.times = times

    def forward(self, x):
        return x * self.times


class Program(M.Module):
    def __init__(self):
        super().__init__()
        self.opaque = Opaque(3)

    def forward(self, x, pair, *, key=None):
        low, high = F.split(x, 2)
        y = halved(self.opaque(low), how="roughly") + pair["b"][0] + (0 if key is None else key)
        y = F.concat([y, F.abs(high)], axis=0)[..., 1:]
        y[0] = 2.0
        return {"out": y, "rest": (F.dropout(y, 0.5), mge.random.uniform(0, 1, (2,)))}


def test_arguments_results_and_registered_things_come_back():
    x, pair = tensor(2, 3), {"b": [tensor(1, 3, seed=1)]}
    module = traced(Program(), x, pair, key=tensor(1, seed=2))
    mge.random.seed(1)
    expected = module(x, pair, key=tensor(1, seed=2))
    back = reloaded(module)
    mge.random.seed(1)
    found = back(x, pair=pair, key=tensor(1, seed=2))
    same(found["out"], expected["out"])
    for one, other in zip(found["rest"], expected["rest"], strict=True):
        same(one, other)
    assert type(back.opaque) is Opaque and back.opaque.times == 3


class Boxed(M.Module):
    def forward(self, box, pair):
        return Box(box.content + 1), Pair(pair.second, pair.first)


def test_registered_containers_and_named_tuples_come_back():
    module = traced(Boxed(), Box(tensor(2)), Pair(tensor(2), tensor(3)))
    box, pair = reloaded(module, trusted=[Pair])(Box(tensor(2)), Pair(tensor(2), tensor(3)))
    same(box.content, tensor(2) + 1)
    same(pair.first, tensor(3))


def test_a_graph_of_fx_comes_back_with_all_that_nodes_hold():
    def program(x, flag=True, *, size=None):
        n = x.shape[0]
        y = doubled(x.reshape(n, -1)).astype(np.float32) if flag else x
        return {"y": y[..., : n // 2], "z": (mge.random.normal(size=(2,)), -y)}

    module = fx.symbolic_trace(program, {"flag": True})
    for node in module.graph.nodes:
        node.meta.update(place=(1, 2), program=program)
    back = reloaded(module)
    assert str(back.graph) == str(module.graph) and back.code == module.code
    same(back(tensor(4, 2), True)["y"], program(tensor(4, 2))["y"])
    assert {node.meta["place"] for node in back.graph.nodes} == {(1, 2)}
    assert "program" not in next(iter(back.graph.nodes)).meta  # no data
    with pytest.raises(ValueError, match="'flag' is False"):
        back(tensor(4, 2), False)
    with pytest.raises(ValueError, match=r"test_model_files.py:\d+$"):
        raise ValueError(next(node for node in back.graph.nodes if node.op == "call_method").source)


def test_graphs_inside_of_graphs_come_back():
    inner = fx.symbolic_trace(M.Sequential(M.Linear(2, 2)))
    tm.register_as_builtin(fx.GraphModule)
    module = traced(M.Sequential(inner, M.ReLU()), tensor(1, 2))
    same(reloaded(module)(tensor(1, 2)), module(tensor(1, 2)))


def test_several_signatures_and_flattened_graphs_come_back():
    class Several(M.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) + self.inner(x, x)

    class Inner(M.Module):
        def forward(self, x, y=None):
            return x * 2 if y is None else x + y

    module = traced(Several(), tensor(2))
    for each in (module, module.flatten()):
        same(reloaded(each)(tensor(2)), module(tensor(2)))
    assert len(reloaded(module).inner.argdef_graph_map) == 2
    part = module.inner
    assert reloaded(part)._is_top and not part._is_top


def test_constants_and_long_graphs_come_back():
    constant = tensor(3)

    class Long(M.Module):
        def forward(self, x):
            for _ in range(500):
                x = x + 1
            return x * constant

    for module in (traced(Long(), tensor(3)), fx.symbolic_trace(Long())):
        same(reloaded(module)(tensor(3)), module(tensor(3)))


# -- names of the caller's -----------------------------------------------------------------------


def mine(x):
    return x * 3


class Leaf(M.Module):
    def forward(self, x):
        return x - 1


def with_own_parts():
    class LeafTracer(fx.Tracer):
        def is_leaf_module(self, m, path):
            return isinstance(m, Leaf) or super().is_leaf_module(m, path)

    root = M.Sequential(Leaf())
    graph = LeafTracer().trace(root)
    (node,) = (node for node in graph.nodes if node.op == "call_module")
    with graph.inserting_after(node):
        new = graph.call_function(mine, (node,))
    node.replace_all_uses_with(new, lambda user: user is not new)
    return fx.GraphModule(root, graph)


def test_what_the_file_names_has_to_be_trusted():
    module = with_own_parts()
    with pytest.raises(ValueError, match=r"test_model_files.Leaf.*not admitted[\s\S]*trusted=\[Leaf\]"):
        reloaded(module)
    with pytest.raises(fx.ModelFileError, match=r"trusted=\[mine\]"):
        reloaded(module, trusted=[Leaf])
    same(reloaded(module, trusted=[Leaf, mine])(tensor(2)), module(tensor(2)))
    other = {f"{__name__}.Leaf": Leaf, f"{__name__}.mine": F.neg}
    same(reloaded(module, trusted=other)(tensor(2)), 1 - tensor(2))


def test_what_is_no_data_is_refused_with_its_place():
    module = fx.symbolic_trace(M.Sequential(M.ReLU()))
    with open(os.devnull) as vars(module)["0"].file, pytest.raises(fx.ModelFileError, match="cannot be saved: ReLU.file: "):
        module.save(io.BytesIO())
    vars(module)["0"].file = lambda: 0
    with pytest.raises(fx.ModelFileError, match="ReLU.file: .*not at the top of a module"):
        module.save(io.BytesIO())
    del vars(module)["0"].file
    module.register_forward_hook(lambda *args: None)
    with pytest.raises(fx.ModelFileError, match="has hooks"):
        module.save(io.BytesIO())


# -- versions ------------------------------------------------------------------------------------


def test_a_newer_file_names_its_writer():
    file = changed(fx.symbolic_trace(M.ReLU()), lambda m: m.update(schema=2, writer="megjit 7.0"))
    with pytest.raises(ValueError, match="written by megjit 7.0, with schema 2; this version reads 1\n  fix"):
        fx.load(file)


def test_a_file_that_keeps_its_nodes_beside_its_exprs_is_read_and_written_as_today():
    module = tm.load(os.path.join(os.path.dirname(__file__), "traced1.mge"))
    x, halves = tensor(3, 2), module.halves
    left, right = F.split(halves.linear(x), 2, axis=1)
    for same_module in (module, reloaded(module)):
        same(same_module(x)["sum"], (left + right) * halves.scale + 1)
        same_module.graph.lint()
        assert str(same_module.graph) == str(module.graph)
    graphs = [graph for item in opened(saved(module))[1]["modules"] if "graph" in item for _, graph in item["graph"]["called"]]
    assert len(graphs) == 2 and all({"op", "target"} <= call.keys() for graph in graphs for call in graph["calls"])


def test_a_file_with_results_beside_the_steps_is_read_and_written_as_today():
    module = tm.load(os.path.join(os.path.dirname(__file__), "traced2.mge"))
    x = tensor(1, 3, 4, 4)
    module.graph.lint()
    again = reloaded(module)
    same(again(x), module(x))
    assert str(again.graph) == str(module.graph) and "return reshape_out" in str(again.graph)
    graphs = [graph for item in opened(saved(module))[1]["modules"] if "graph" in item for _, graph in item["graph"]["called"]]
    assert all(graph["calls"][-1]["op"] == "output" and graph.keys() == {"name", "qualname", "calls"} for graph in graphs)


def test_loaders_see_the_version_and_functions_that_are_gone():
    module = traced(M.Sequential(Program2()), tensor(2))

    def older(model):
        model["version"] = "1.0"
        for called in model["modules"][1]["graph"]["called"]:
            for expr in called[1]["calls"]:
                if expr["op"] == "call_function":
                    expr["target"] = "megengine.functional.gone"

    with pytest.raises(AttributeError, match="functional.gone"):
        tm.load(changed(module, older))(tensor(2))

    from megengine.traced_module.serialization import FUNCTIONAL_LOADER, register_functional_loader

    @register_functional_loader(("megengine.functional", "gone"))
    def replace(expr):
        assert expr.version == "1.0"
        expr.func = F.exp

    try:
        same(tm.load(changed(module, older))(tensor(2)), F.exp(tensor(2)))
    finally:
        del FUNCTIONAL_LOADER["megengine.functional", "gone"]


class Program2(M.Module):
    def forward(self, x):
        return F.relu(x)


# -- writing and devices -------------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.mge"
    module = fx.symbolic_trace(Net())
    module.save(path)
    before = path.read_bytes()

    from megengine._files import container

    real = container.host_bytes
    calls = []

    def fails_late(tensor):
        calls.append(tensor)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return real(tensor)

    monkeypatch.setattr(container, "host_bytes", fails_late)
    with pytest.raises(KeyboardInterrupt):
        module.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["net.mge"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    import resource
    import signal

    path = tmp_path / "net.mge"
    module = fx.symbolic_trace(Net())
    module.save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError):
            module.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["net.mge"]


def test_map_location_moves_tensors():
    file = io.BytesIO()
    fx.symbolic_trace(Net()).save(file)
    file.seek(0)
    seen = []
    fx.load(file, map_location=lambda device: seen.append(device) or "cpu0")
    assert seen and set(seen) == {"xpux:0"}


def test_a_file_of_the_other_kind_is_named(tmp_path):
    fx.symbolic_trace(Net()).save(tmp_path / "net.mge")
    with pytest.raises(ValueError, match="net.mge: it holds a GraphModule, not a TracedModule"):
        tm.load(tmp_path / "net.mge")
    with pytest.raises(FileNotFoundError):
        tm.load(tmp_path / "none.mge")


# -- pickles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_models_in_pickles_need_no_flag(make, tmp_path):
    module = make(Net())
    module.eval()
    mge.save({"model": module}, tmp_path / "net.pkl")
    back = mge.load(tmp_path / "net.pkl")["model"]
    assert format(back.graph) == format(module.graph)
    same(back(tensor(2, 3, 4, 4)), module(tensor(2, 3, 4, 4)))


def test_pickled_constants_need_no_flag():
    module = traced(M.Sequential(Index()), tensor(2))
    same(mge.load(io.BytesIO(pickle.dumps(module)))(tensor(2)), module(tensor(2)))


class Index(M.Module):
    def forward(self, x, index=None):
        return F.squeeze(x[None, ..., ::2, index], axis=None)


def test_own_parts_of_pickled_graphs_have_to_be_trusted(tmp_path):
    module = with_own_parts()
    mge.save(module, tmp_path / "net.pkl")
    with pytest.raises(RuntimeError, match=r"(?s)mine.*trusted=\[mine\]"):  # a class of the program needs no trust
        mge.load(tmp_path / "net.pkl")
    back = mge.load(tmp_path / "net.pkl", trusted=[mine])
    same(back(tensor(2)), module(tensor(2)))


def test_a_pickle_imports_no_module_for_a_function(monkeypatch):
    from megengine.traced_module.function_names import FunctionName

    module = traced(M.Sequential(Program2()), tensor(2))
    monkeypatch.setattr(FunctionName, "of", classmethod(lambda cls, function: cls("antigravity", "fly")))
    content = pickle.dumps(module)
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"'antigravity.fly', which is not admitted"):
        mge.load(io.BytesIO(content))
    assert "antigravity" not in sys.modules


def test_graphs_in_pickles_only_compute():
    module = fx.symbolic_trace(lambda x: getattr(x.sum(), "ndim"))  # noqa: B009
    for node in module.graph.nodes:
        if node.target is getattr:
            node.update_arg(1, "__class__")
    with pytest.raises(RuntimeError, match="'__class__', which graphs in files do not"):
        mge.load(io.BytesIO(pickle.dumps(module)))
    module = traced(M.Sequential(Program2()), tensor(2))
    (expr,) = module.graph.top_graph.get_function_by_type(F.relu)
    expr.top_graph._module.method = 1
    assert mge.load(io.BytesIO(pickle.dumps(module))) is not None
    with expr.top_graph.insert_exprs():
        expr.outputs[0].sum()
    expr.top_graph.get_method_by_type("sum").as_unique().method = "__reduce__"
    with pytest.raises(RuntimeError, match="'__reduce__', which graphs in files do not"):
        mge.load(io.BytesIO(pickle.dumps(module)))


def test_functions_that_are_steps_of_graphs_are_admitted():
    settings = {id(found) for found in vars(F.debug_param).values()}  # which say how to run, and compute nothing
    names = [admitted.name_of(each) for each in RECORDED if id(each) not in settings]
    assert len(names) > 200 and [name for name in names if admitted.Admission().find(name) is None] == []


def test_helpers_of_torch_functions_are_admitted():
    """Those that are marked with `wrap` are steps of graphs, and found in a process that has imported none of them."""
    names = []
    for file in sorted((Path(mge.__file__).parent / "fx" / "torchlike").glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(isinstance(mark, ast.Name) and mark.id == "wrap" for mark in node.decorator_list):
                names.append(f"megengine.fx.torchlike.{file.stem}.{node.name}")
    program = "import sys\nfrom megengine._files import admitted\nprint([n for n in sys.argv[1:] if admitted.Admission().find(n) is None])"
    told = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True).stdout
    assert len(names) > 5 and told == "[]\n"
