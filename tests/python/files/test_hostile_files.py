"""Files that want more than to be read: code, attributes, memory, time."""

import io
import json
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from rewriting import changed, joined, opened, saved

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import fx
from megengine._files import container


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.inner = M.Sequential(M.Linear(2, 2))
        self.weight = mge.Parameter([1.0])

    def forward(self, x):
        return F.relu(self.inner(x).reshape(-1)) * self.weight + getattr(x, "ndim")


def graph_module():
    return fx.symbolic_trace(Net())


def traced():
    return tm.trace_module(Net(), mge.tensor([[1.0, 2.0]]))


def nodes_of(model):
    return next(item["graph"] for item in model["modules"] if item["class"] == "megengine.fx.GraphModule")


def exprs_of(model):
    return [e for item in model["modules"] if "graph" in item for _, g in item["graph"]["called"] for e in g["calls"]]


def refused(file, why, load=fx.load):
    with pytest.raises(fx.ModelFileError, match=why):
        load(file)


# -- names ---------------------------------------------------------------------------------------

NAMES = [
    "os.system", "builtins.eval", "builtins.exec", "builtins.open", "builtins.setattr", "builtins.__import__",
    "operator.methodcaller", "operator.attrgetter", "operator.call", "numpy.load", "numpy.ndarray.tofile", "pickle.loads",
    "megengine.functional.relu.__globals__", "megengine.functional.nn.ops", "megengine.load", "megengine.hub.load",
    "megengine.functional.external.extern_opr_subgraph", "megengine.traced_module.load", "subprocess.Popen", "", ".",
    "megengine.functional.debug_param.set_execution_strategy", "importlib.import_module", "builtins.type",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_functions_that_are_not_admitted_are_refused(name):
    def in_node(model):
        next(n for n in nodes_of(model) if n["op"] == "call_function")["target"] = name

    def as_argument(model):
        next(n for n in nodes_of(model) if n["op"] == "call_method")["args"].append({"global": name})

    def in_expr(model):
        next(e for e in exprs_of(model) if e["op"] == "call_function")["target"] = name

    refused(changed(graph_module(), in_node), "not admitted")
    refused(changed(graph_module(), as_argument), "not admitted")
    if not name.startswith("megengine."):  # of ours, unknown functions stay names until a loader replaces them
        refused(changed(traced(), in_expr), "not admitted", tm.load)


@pytest.mark.parametrize("name", ["os.path", "builtins.type", "megengine.Tensor", "collections.UserDict", "numpy.float32"])
def test_classes_that_are_no_modules_are_refused(name):
    refused(changed(graph_module(), lambda model: model["modules"][1].update({"class": name})), "not admitted|graph")


ATTRIBUTES = ["__class__", "__reduce__", "__dict__", "_core", "tofile", "dump", "ctypes", "\uff54ofile", "a.b", "x()", ""]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_graphs_reach_no_insides_of_values(name):
    def method(model):
        next(n for n in nodes_of(model) if n["op"] == "call_method")["target"] = name

    def attribute(model):
        next(n for n in nodes_of(model) if n["target"] == "builtins.getattr")["args"][1] = name

    def of_expr(model):
        next(e for e in exprs_of(model) if e["op"] == "call_method" and e["target"] == "reshape")["target"] = name

    refused(changed(graph_module(), method), "which graphs in files do not")
    refused(changed(graph_module(), attribute), "which graphs in files do not")
    refused(changed(traced(), of_expr), "which graphs in files do not", tm.load)


@pytest.mark.parametrize("path", ["__class__", "inner.__dict__", "inner.forward", "training", "", "inner..0", "inner.1", "0"])
def test_paths_lead_through_data(path):
    def of_node(model):
        next(n for n in nodes_of(model) if n["op"] == "call_module")["target"] = path

    def of_expr(model):
        next(e for e in exprs_of(model) if e["op"] == "get_attr")["target"] = path

    refused(changed(graph_module(), of_node), "nothing at|no path|not a module")
    refused(changed(traced(), of_expr), "nothing at|no path|reads a", tm.load)


@pytest.mark.parametrize("name", ["forward", "__class__", "__call__", "modules", "__dict__"])
def test_attributes_do_not_hide_methods(name):
    def change(model):
        model["modules"][-1]["attributes"][name] = {"global": "builtins.getattr"}

    refused(changed(graph_module(), change), "would hide|is called")


def test_parameters_have_names_of_their_own():
    def change(model):
        for node in nodes_of(model):
            if node["op"] == "placeholder":
                node["name"] = "self"

    refused(changed(graph_module(), change), "one name: self, self")


@pytest.mark.parametrize("name", ["x; import os", "self", "a b", "import", "é", "\uff53elf", "x=print()", "None", "__debug__", ""])
def test_names_never_become_code(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(model):
        for node in nodes_of(model):
            if node["op"] == "placeholder":
                node["name"] = node["target"] = name

    try:
        module = fx.load(changed(graph_module(), change))
    except fx.ModelFileError:
        return
    assert "import os" not in module.code and "print" not in module.code
    module(mge.tensor([[1.0, 2.0]]))


def test_text_and_keywords_never_become_code():
    hostile = "'''\"\n); import os; os.system('true') #"

    def change(model):
        node = next(n for n in nodes_of(model) if n["op"] == "call_method")
        node["args"].append(hostile)
        node["kwargs"] = {hostile: {"bytes": "Jyk7"}}

    module = fx.load(changed(graph_module(), change))
    assert module.code.count("\n") == graph_module().code.count("\n")
    with pytest.raises(TypeError):
        module(mge.tensor([[1.0, 2.0]]))


# -- lengths and limits --------------------------------------------------------------------------


def with_header(change):
    header, model, data = opened(saved(graph_module()))
    change(header)
    return io.BytesIO(joined(header, model, data))


def raw(text, data=b""):
    return io.BytesIO(struct.pack("<Q", len(text)) + text + data)


ENTRY = "inner.0.weight"


@pytest.mark.parametrize(
    "entry, why",
    [
        ({"data_offsets": [0, 2**40]}, "bytes, its shape"),
        ({"data_offsets": [-8, 8]}, "where it lies"),
        ({"data_offsets": [8, 24]}, "overlap, or leave a gap"),
        ({"data_offsets": [8, 0]}, "bytes, its shape"),
        ({"shape": [2**31, 2**31]}, "bytes, its shape"),
        ({"shape": [2**61, 4]}, "bytes, its shape"),
        ({"shape": [2**61, 2**61, 2**61]}, "bytes, its shape"),
        ({"shape": [0, 2**63]}, "no shape"),
        ({"shape": [-2, -2]}, "no shape"),
        ({"shape": [True, 4]}, "no shape"),
        ({"shape": [1] * 33}, "no shape"),
        ({"shape": "22"}, "no shape"),
        ({"dtype": "F128"}, "dtype 'F128'"),
        ({"dtype": ["F32"]}, "dtype"),
        ({"dtype": "F16"}, "bytes, its shape"),
        ({"more": 1}, "not one of a tensor"),
    ],
)
def test_tensors_that_do_not_fit_the_file_are_refused(entry, why):
    refused(with_header(lambda header: header[ENTRY].update(entry)), why)


@pytest.mark.parametrize("shape", [[0, 2**62], [0] * 32, [2**20, 0, 2**20]])
def test_empty_tensors_of_absurd_shapes_are_loaded_or_refused(shape):
    def change(header):
        begin = header[ENTRY]["data_offsets"][0]
        size = header[ENTRY]["data_offsets"][1] - begin
        for entry in header.values():
            if "data_offsets" in entry and entry["data_offsets"][0] > begin:
                entry["data_offsets"] = [place - size for place in entry["data_offsets"]]
        header[ENTRY] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin]}

    header, model, data = opened(saved(graph_module()))
    begin, end = header[ENTRY]["data_offsets"]
    change(header)
    file = io.BytesIO(joined(header, model, data[:begin] + data[end:]))
    try:
        assert fx.load(file).inner is not None
    except fx.ModelFileError:
        pass


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "it has 0 bytes"),
        (b"\x01\x00", "it has 2 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "its header alone"),
        (struct.pack("<Q", 100) + b"{}", "its header alone"),
        (struct.pack("<Q", 2) + b"[]", "does not begin like"),
        (struct.pack("<Q", 2) + b"{}", "tensors and no model"),
        (struct.pack("<Q", 2) + b"{}" + b"x", "its tensors take 0 bytes"),
        (struct.pack("<Q", 4) + b"{\xff\xff}", "not JSON"),
        (struct.pack("<Q", 14) + b'{"a":1, "a":1}', "a key twice"),
        (struct.pack("<Q", 9) + b'{"a":NaN}', "NaN"),
    ],
)
def test_what_is_no_model_file_is_named(content, why, tmp_path):
    (tmp_path / "net.mge").write_bytes(content)
    for load in (fx.load, tm.load):
        refused(tmp_path / "net.mge", rf"net.mge: .*{why}[\s\S]*\n  fix: ", load)


def test_every_truncation_is_refused():
    content = saved(graph_module())
    for end in range(0, len(content), 7):
        refused(io.BytesIO(content[:end]), "fix: the file is truncated")


def peak_of(file):
    tracemalloc.start()
    try:
        with pytest.raises(fx.ModelFileError):
            fx.load(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":' + b"[" * 3_000_000,
        b'{"a":[' + b"[]," * 2_000_000 + b"0]}",
        b'{"a":"' + b"x" * 4_000_000 + b'"}',
        b'{"a":[' + b"1," * 3_000_000 + b"0]}",
        b'{"__metadata__":{"megengine.model":"' + b"[" * 4_000_000 + b'"}}',
        b'{"__metadata__":{"megengine.model":"{' + b"\\\"a\\\":" * 2_000_000 + b'"}}',
    ],
)
def test_text_alone_takes_little_memory(text):
    assert peak_of(raw(text)) < 3 * len(text) + (1 << 20)


def test_a_value_takes_what_the_page_says(monkeypatch):
    values = 1 << 16
    monkeypatch.setattr(container, "VALUES", values)
    peak = peak_of(raw(b'{"a":[' + b"[]," * (values // 2 - 5) + b"0]}"))
    assert 30 * values < peak < 110 * values
    refused(raw(b'{"a":[' + b"[]," * (values // 2) + b"0]}"), "more than 65536 values")


def test_nested_values_are_refused_before_python_gives_up():
    def nested(depth):
        def change(model):
            value = 1
            for _ in range(depth):
                value = {"tuple": [value]}
            model["modules"][0]["attributes"]["deep"] = value

        return change

    assert fx.load(changed(graph_module(), nested(49))).deep
    refused(changed(graph_module(), nested(60)), "nested more than 50 deep")

    header, model, data = opened(saved(graph_module()))
    model["modules"][0]["attributes"]["deep"] = "HERE"
    content = joined(header, model, data)
    text = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    inner = text["__metadata__"]["megengine.model"]
    text["__metadata__"]["megengine.model"] = inner.replace('"HERE"', "[" * 10_000 + "]" * 10_000)
    refused(raw(json.dumps(text).encode(), data), "nested too deeply")


def test_keys_with_equal_hashes_are_counted_before_they_are_hashed():
    keys = [place * (2**61 - 1) for place in range(100_000)]
    for value in ({"set": keys}, {"dict": [[key, 1] for key in keys]}):
        refused(
            changed(graph_module(), lambda model, value=value: model["modules"][1]["attributes"].update(x=value)),
            "more than 4096 keys",
        )
    small = {"set": list(range(5000))}
    loaded = fx.load(changed(graph_module(), lambda model: model["modules"][1]["attributes"].update(x=small)))
    assert len(loaded.inner.x) == 5000


def test_ranges_are_short_enough_for_lists():
    def change(model):
        model["modules"][1]["attributes"]["x"] = {"range": [0, 2**62, 1]}

    refused(changed(graph_module(), change), "a range of")


def test_a_signature_has_no_thousands_of_parameters():
    def change(model):
        model["modules"][0]["graph"]["signature"] += [[f"p{place}", 1, None] for place in range(2000)]

    refused(changed(traced(), change), "more than 1000 parameters", tm.load)


def test_modules_that_hold_each_other_in_a_ring_load():
    def change(model):
        model["modules"][1]["attributes"]["back"] = {"module": 0}

    module = fx.load(changed(graph_module(), change))
    assert module.inner.back is module


def test_references_beyond_the_file_are_refused():
    for value in ({"module": 99}, {"module": -1}, {"tensor": "none"}, {"node": 0}, {"tensor": 1}, {"a": 1, "b": 2}):
        refused(
            changed(graph_module(), lambda model, value=value: model["modules"][1]["attributes"].update(x=value)), "it "
        )


def test_a_step_reads_only_what_is_made_before():
    def fx_loop(model):
        next(n for n in nodes_of(model) if n["op"] == "call_method")["args"][0] = {"node": 5}

    def expr_loop(model):
        next(e for e in exprs_of(model) if e["op"] == "call_function")["args"][0] = {"node": 50}

    refused(changed(graph_module(), fx_loop), "not made before")
    refused(changed(traced(), expr_loop), "not made before", tm.load)


def test_a_device_that_is_not_there_says_so(tmp_path):
    def change(model):
        model["tensors"][ENTRY]["device"] = "gpu99"

    refused(changed(graph_module(), change), "gpu99")
    assert fx.load(changed(graph_module(), change), map_location="cpu0").inner is not None


def test_running_a_loaded_graph_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numpy = mge.tensor([1.0]).numpy()
    assert isinstance(numpy, np.ndarray) and hasattr(numpy, "tofile")  # what a graph would need to reach

    def change(model):
        nodes = nodes_of(model)
        call = next(n for n in nodes if n["op"] == "call_method")
        call.update(target="numpy", args=call["args"][:1])
        following = nodes[nodes.index(call) + 1]
        following.clear()
        following.update(op="call_method", name="written", target="tofile", args=[{"node": nodes.index(call)}, "stolen"])

    refused(changed(graph_module(), change), "'tofile', which graphs in files do not")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda calls: calls.pop(), "does not end with what it gives"),
        (lambda calls: calls.append(calls[-1]), "does not end with what it gives"),
        (lambda calls: calls.insert(2, {"op": "output", "name": "output", "target": "output", "args": [3]}), "does not end with what it gives"),
        (lambda calls: calls[-1].update(args=[]), "not one tree"),
        (lambda calls: calls[-1].update(kwargs={"x": 1}), "not one tree"),
        (lambda calls: calls[-1].update(makes=[{"kind": "TensorNode", "name": "y", "qualname": ""}]), "does not make the values"),
    ],
)
def test_what_a_traced_graph_gives_is_its_last_step_and_one_tree(change, why):
    def of_graphs(model):
        for item in model["modules"]:
            for _, graph in item["graph"]["called"] if "graph" in item else ():
                change(graph["calls"])

    refused(changed(traced(), of_graphs), why, tm.load)



@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda graph: graph["exprs"][1].update(makes=99), "makes 99 values of"),
        (lambda graph: graph["exprs"][1].update(makes=-1), "makes -1 values of"),
        (lambda graph: graph["exprs"][1].update(kind="Exec"), "unknown kind 'Exec'"),
        (lambda graph: graph["exprs"][1].update(kind=[]), "where something else belongs"),
        (lambda graph: graph["nodes"].pop(), "makes 2 values of 1"),
        (lambda graph: graph["nodes"][0].update(name="not a name"), "cannot be the name|as no node can be"),
        (lambda graph: graph["exprs"].pop(0), "does not begin with the module|not made before|does not make"),
    ],
)  # fmt: skip
def test_graphs_in_the_older_form_are_checked_as_well(change, why):
    header, model, data = opened((Path(__file__).parent / "traced1.mge").read_bytes())
    change(next(item["graph"]["called"][0][1] for item in model["modules"] if "graph" in item))
    refused(io.BytesIO(joined(header, model, data)), why, tm.load)
