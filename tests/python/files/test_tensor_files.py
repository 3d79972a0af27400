"""Tensors by name in safetensors files: read, mapped, shared, written, and refused if damaged."""

import copy
import io
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from writing import DTYPES, floats, of_array, safetensors, with_header, written

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import _core, fx
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.serialization import TensorFile


@pytest.fixture(params=[False, True], ids=["read", "mapped"])
def mmap(request):
    return request.param


@pytest.mark.parametrize("word", DTYPES)
def test_every_dtype_has_its_values(word, mmap, tmp_path):
    array = np.arange(12).reshape(3, 4).astype(DTYPES[word])
    tensors = {"x": of_array(array), "one": of_array(array[1, 1]), "none": of_array(array[:0])}
    found = mge.load(written(tmp_path / "a.safetensors", safetensors(tensors)), mmap=mmap)
    assert list(found) == ["x", "one", "none"]
    assert found["x"].dtype == array.dtype and found["x"].shape == (3, 4)
    assert found["x"].numpy().tobytes() == array.tobytes()
    assert found["one"].shape == () and found["none"].shape == (0, 4)


def test_what_is_saved_is_read_by_any_reader_and_by_load(mmap, tmp_path):
    state = {
        "w": mge.Parameter(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "b": np.arange(3).astype(ml_dtypes.bfloat16),
        "strided": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "number": np.float32(0.5),
    }
    path = tmp_path / "a.safetensors"
    mge.save(state, path)
    theirs, ours = load_file(path), mge.load(path, mmap=mmap)
    for name, wanted in state.items():
        assert np.array_equal(theirs[name], np.asarray(wanted))
        assert np.array_equal(ours[name].numpy(), np.asarray(wanted))


def test_the_mapping_and_its_metadata(mmap, tmp_path):
    content = safetensors({"x": ("F32", [1], floats(1))}, __metadata__={"format": "pt"})
    found = mge.load(written(tmp_path / "a.safetensors", content), mmap=mmap)
    assert isinstance(found, TensorFile) and found.metadata == {"format": "pt"}
    assert "x" in found and "y" not in found and len(found) == 1 and found["x"] is found["x"]
    assert repr(found) == f"TensorFile(1 tensors of {tmp_path / 'a.safetensors'})"
    with pytest.raises(KeyError):
        found["y"]


def test_a_copy_of_the_mapping_is_a_dict(mmap, tmp_path):
    content = safetensors({"x": ("F32", [1], floats(1))})
    found = mge.load(written(tmp_path / "a.safetensors", content), mmap=mmap)
    mge.save(found, tmp_path / "a.pkl")
    for copied in (mge.load(tmp_path / "a.pkl"), copy.deepcopy(found)):
        assert type(copied) is dict and copied["x"].tolist() == [1]


def test_elements_off_the_multiples_of_their_size_are_copied(mmap, tmp_path):
    one = ml_dtypes.bfloat16(1).tobytes()
    tensors = {"a": ("I8", [1], b"a"), "b": ("F32", [2], floats(1, 2)), "c": ("BF16", [1], one)}
    found = mge.load(written(tmp_path / "a.safetensors", safetensors(tensors)), mmap=mmap)
    assert found["b"].tolist() == [1, 2] and float(found["c"].numpy()[0]) == 1


def test_open_files_are_read():
    found = mge.load(io.BytesIO(safetensors({"x": ("F32", [2], floats(3, 4))})))
    assert found["x"].tolist() == [3, 4]


def test_tensors_go_where_map_location_says(mmap, tmp_path):
    path = written(tmp_path / "a.safetensors", safetensors({"x": ("F32", [1], floats(5))}))
    x = mge.load(path, map_location="cpu1", mmap=mmap)["x"]
    assert x.device.logical_name.startswith("cpu1") and x.tolist() == [5]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([1], "tensors by name, the object is a list"),
        ({3: np.zeros(1)}, "the key 3"),
        ({"epoch": 3}, "'epoch' is a int"),
        ({"a": {"b": np.zeros(1)}}, "'a' is a dict"),
        ({"name": np.array(["x"])}, "'name' is of the dtype <U1"),
    ],
)
def test_what_no_safetensors_file_holds_is_named(state, words, tmp_path):
    with pytest.raises(TypeError, match=f"(?s){words}.*fix: "):
        mge.save(state, tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


# ---- mapped


def net_of(width):
    return M.Sequential(M.Linear(width, width), M.ReLU(), M.Linear(width, width))


def mapped_net(tmp_path, width=64):
    """(network, the same whose weights are pages of a file, the file)."""
    net, path = net_of(width), tmp_path / "net.safetensors"
    mge.save(net.state_dict(), path)
    with M.init.skipped():
        mapped = net_of(width)
    mapped.load_state_dict(mge.load(path, mmap=True))
    return net, mapped, path


def trained(net, level):
    """The state of a network whose last layer was trained for three steps."""
    manager = GradManager().attach(net[2].parameters())
    optimizer = optim.SGD(net[2].parameters(), lr=0.1, momentum=0.9)

    def step(x):
        with manager:
            manager.backward(F.mean(net(x) ** 2))
        optimizer.step().clear_grad()

    run = step if level is None else trace(step, symbolic=True, opt_level=level)
    for _ in range(3):
        run(mge.Tensor(np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)))
    return net.state_dict()


@pytest.mark.parametrize("level", [None, 2, 3])
def test_training_gives_parameters_new_values_and_leaves_the_file(level, tmp_path):
    net, mapped, path = mapped_net(tmp_path)
    before = path.read_bytes()
    ours, theirs = trained(mapped, level), trained(net, level)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert not np.array_equal(ours["2.weight"], mge.load(path)["2.weight"].numpy())
    assert path.read_bytes() == before and not is_writable(mapped[0].weight)


def test_a_write_to_a_mapped_tensor_stays_in_the_tensor(tmp_path):
    path = written(tmp_path / "a.safetensors", safetensors({"x": ("F32", [2], floats(1, 2))}))
    found, again = mge.load(path, mmap=True), mge.load(path, mmap=True)
    x = found["x"]
    x[0] = 9
    x += 1
    assert found["x"].tolist() == [10, 3] and again["x"].tolist() == [1, 2]
    assert path.read_bytes().endswith(floats(1, 2))


def address_of(tensor):
    return np.from_dlpack(_core.lend(tensor)).ctypes.data


def is_writable(tensor):
    """Whether the process may write to the page at which the value lies."""
    address = address_of(tensor)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights = line.split()[:2]
        begin, end = (int(each, 16) for each in place.split("-"))
        if begin <= address < end:
            return "w" in rights
    raise AssertionError(f"{address} is no address of the process")


@pytest.mark.host("memory of the process")
def test_a_mapped_value_is_loaded_without_a_copy(tmp_path):
    _, mapped, path = mapped_net(tmp_path)
    found = mge.load(path, mmap=True)
    mapped.load_state_dict(found)
    assert address_of(mapped[0].weight) == address_of(found["0.weight"])
    assert not is_writable(mapped[0].weight)


def test_values_of_64_bits_are_narrowed_as_arrays_are():
    layer = M.Linear(2, 1)
    weight = mge.Tensor(np.ones((1, 2)), dtype="float64")
    layer.load_state_dict({"weight": weight, "bias": np.ones(1)})
    assert layer.weight.dtype == layer.bias.dtype == np.float32


MEASURE = """
import sys, numpy as np, megengine as mge, megengine.module as M

def kilobytes(word):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(word))

start = {word: kilobytes(word) for word in ("RssAnon", "VmHWM")}
with M.init.skipped():
    net = M.Sequential(*[M.Linear(1024, 1024) for _ in range(16)])
state = mge.load(sys.argv[1], mmap=True)
net.load_state_dict(state)
state["0.weight"][0].numpy()
print(*(kilobytes(word) - start[word] for word in start))
net(mge.Tensor(np.ones((1, 1024), np.float32))).numpy()
print(*(kilobytes(word) - start[word] for word in start))
"""


@pytest.mark.host("memory of the process")
def test_a_mapped_model_takes_no_memory_of_its_own(tmp_path):
    """Of 64 MB the process reads what it uses, and has no private page for it."""
    path = tmp_path / "net.safetensors"
    mge.save(M.Sequential(*[M.Linear(1024, 1024) for _ in range(16)]).state_dict(), path)
    run = [sys.executable, "-c", MEASURE, path]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    private, peak, private_used, peak_used = map(int, told.split())
    assert private <= 20 << 10 and peak <= 20 << 10
    assert private_used <= 20 << 10 and peak_used >= 60 << 10  # with the file's pages


PAGES = """
import sys, megengine as mge
state = mge.load(sys.argv[1], mmap=True)
total = state["x"].sum().numpy()
print("ready", flush=True)
sys.stdin.readline()
sizes, is_ours = {}, False
for line in open("/proc/self/smaps"):
    word, size = line.split()[:2]
    is_ours = line.rstrip().endswith("net.safetensors") if "-" in word else is_ours
    if is_ours and word.endswith(":") and size.isdecimal():
        sizes[word] = sizes.get(word, 0) + int(size)
print(*(sizes[kind + "_Clean:"] + sizes[kind + "_Dirty:"] for kind in ("Shared", "Private")))
"""


SAVE = """
import resource, sys, megengine as mge, megengine.module as M

with M.init.skipped():
    net = M.Sequential(*[M.Linear(1024, 1024) for _ in range(16)])
net.load_state_dict(mge.load(sys.argv[1], mmap=True))
status = dict(line.split(":") for line in open("/proc/self/status"))
limit = 1024 * int(status["VmData"].split()[0]) + (20 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
mge.save(net.state_dict(keep_var=True), sys.argv[1])
"""


@pytest.mark.host("memory of the process")
def test_a_mapped_model_is_saved_tensor_by_tensor(tmp_path):
    """64 MB are written over the file that is mapped, by a process that may take 20 MB."""
    path = tmp_path / "net.safetensors"
    mge.save(M.Sequential(*[M.Linear(1024, 1024) for _ in range(16)]).state_dict(), path)
    before = path.read_bytes()
    subprocess.run([sys.executable, "-c", SAVE, path], check=True)
    assert path.read_bytes() == before


@pytest.mark.host("memory of the process")
def test_two_processes_share_the_pages(tmp_path):
    path = tmp_path / "net.safetensors"
    mge.save({"x": np.ones((512, 1024), np.float32)}, path)
    run = [sys.executable, "-c", PAGES, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(run, **pipes) for _ in range(2)]
    assert [each.stdout.readline() for each in both] == ["ready\n"] * 2
    shared, private = map(int, both[0].communicate("\n")[0].split())
    both[1].communicate("\n")
    assert shared >= 2 << 10 and private <= 64


def test_tensors_outlive_what_load_gave_and_the_name_of_the_file(tmp_path):
    path = written(tmp_path / "a.safetensors", safetensors({"x": ("F32", [1], floats(7))}))
    x = mge.load(path, mmap=True)["x"]
    path.unlink()
    assert x.tolist() == [7]


def test_a_file_that_shrinks_is_told_when_a_tensor_is_first_asked_for(tmp_path):
    content = safetensors({"x": ("F32", [4096], bytes(16384))})
    path = written(tmp_path / "a.safetensors", content)
    found = mge.load(path, mmap=True)
    os.truncate(path, 100)
    words = r"(?s)cannot read 'x' of .*a.safetensors: it has 100 bytes.*fix: load the file again"
    with pytest.raises(RuntimeError, match=words):
        found["x"]


@pytest.mark.host("memory of the process")
def test_model_files_are_mapped_too(tmp_path):
    net = net_of(64)
    fx.symbolic_trace(net).save(tmp_path / "net.mge")
    loaded, x = mge.load(tmp_path / "net.mge", mmap=True), mge.Tensor(np.ones((1, 64), np.float32))
    assert np.array_equal(loaded(x).numpy(), net(x).numpy())
    parameters = list(loaded.parameters())
    assert len(parameters) == 4 and not any(map(is_writable, parameters))


@pytest.mark.parametrize(
    ("file", "mmap"), [("a.pkl", True), ("a.safetensors", True), ("a.gguf", False)]
)
def test_pickles_are_no_files_of_tensors(file, mmap, tmp_path):
    path = written(tmp_path / file, pickle.dumps({"x": np.zeros(1)}))
    with pytest.raises(RuntimeError, match=f"{file}: it is a pickle\n  fix: mmap=True and names"):
        mge.load(path, mmap=mmap)


def test_what_is_no_file_of_the_system_is_not_mapped():
    with pytest.raises(RuntimeError, match="only a file of the system's can be mapped"):
        mge.load(io.BytesIO(safetensors({})), mmap=True)


# ---- folders


def sharded(folder, weight_map=None):
    """A folder with an index of two files."""
    first = {"a": ("F32", [1], floats(1)), "other": ("I8", [1], b"0")}
    written(folder / "m-1.safetensors", safetensors(first))
    written(folder / "m-2.safetensors", safetensors({"b": ("F32", [1], floats(2))}))
    weight_map = weight_map or {"a": "m-1.safetensors", "b": "m-2.safetensors"}
    index = {"metadata": {"total_size": 8}, "weight_map": weight_map}
    return written(folder / "model.safetensors.index.json", json.dumps(index).encode())


def test_a_folder_of_shards_is_one_mapping(mmap, tmp_path):
    for path in (sharded(tmp_path), tmp_path):
        found = mge.load(path, mmap=mmap)
        assert {name: each.tolist() for name, each in found.items()} == {"a": [1], "b": [2]}
        assert found.metadata == {"total_size": 8}


def test_a_folder_with_one_file_is_that_file(mmap, tmp_path):
    written(tmp_path / "x.safetensors", safetensors({"a": ("F32", [1], floats(1))}))
    assert list(mge.load(tmp_path, mmap=mmap)) == ["a"]


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": "../m-1.safetensors"}, "'../m-1.safetensors', which is no .safetensors file beside"),
        ({"a": "m.pkl"}, "'m.pkl', which is no .safetensors file beside"),
        ({"a": "m-3.safetensors"}, "m-3.safetensors, which is not there"),
        ({"c": "m-1.safetensors"}, "m-1.safetensors for 'c', which is not in that file"),
        ({"a": "p.safetensors"}, "p.safetensors is a pickle"),
        ({"a": "t.safetensors"}, "t.safetensors: it has 4 bytes"),
        ([1], "it has no weight_map"),
        ({"a": 1}, "it has no weight_map"),
    ],
)
def test_a_wrong_index_is_refused(weight_map, words, mmap, tmp_path):
    path = sharded(tmp_path, weight_map)
    written(tmp_path / "p.safetensors", pickle.dumps({}))
    written(tmp_path / "t.safetensors", b"1234")
    with pytest.raises(RuntimeError, match=f"(?s)index.json: .*{words}.*fix: "):
        mge.load(path, mmap=mmap)


def test_a_folder_of_other_things_is_refused(tmp_path):
    words = "has no model.safetensors.index.json, and 0 files .safetensors\n  fix: "
    with pytest.raises(RuntimeError, match=words):
        mge.load(tmp_path)


# ---- damaged files


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def with_entry(data=bytes(8), **changes):
    return with_header(json.dumps({"x": ENTRY | changes}), data)


DAMAGED = {
    "no header": (b"\x05" + bytes(7) + b"{", "its header alone would have 5"),
    "an absurd header": (struct.pack("<Q", 1 << 62) + b"{}", "neither a safetensors nor a GGUF"),
    "a truncated file": (with_entry(bytes(7)), "its tensors take 8 bytes, it has 7"),
    "bytes behind the last": (with_entry(bytes(9)), "its tensors take 8 bytes, it has 9"),
    "an overlap": (with_header(json.dumps({"x": ENTRY, "y": ENTRY}), bytes(8)), "overlap"),
    "a gap": (with_entry(bytes(12), data_offsets=[4, 12]), "gap, at byte 4"),
    "a wrong size": (with_entry(shape=[3]), "'x' has 8 bytes, its shape"),
    "a place behind the end": (with_entry(b""), "its tensors take 8 bytes, it has 0"),
    "a negative extent": (with_entry(shape=[-2]), "'x' has no shape that"),
    "large extents": (with_entry(shape=[1 << 60, 1 << 60]), "'x' has 8 bytes, its shape"),
    "large extents of nothing": (
        with_entry(b"", shape=[0, 1 << 60, 1 << 60], data_offsets=[0, 0]),
        "'x' has the shape .* no tensor can have",
    ),
    "a name twice": (with_header(f'{{"x":{json.dumps(ENTRY)},"x":[]}}', bytes(8)), "a key twice"),
    "a dtype of 8 bits": (safetensors({"x": ("F8_E4M3", [2], bytes(2))}), "'x' .* 'F8_E4M3'.*conv"),
    "a dtype of arrays alone": (safetensors({"x": ("U32", [2], bytes(8))}), "'x' .* 'U32'.*conv"),
    "nine axes": (safetensors({"x": ("F32", [1] * 9, bytes(4))}), "'x' has 9 axes"),
    "no JSON": (with_header("{]"), "is not JSON"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_refused(what, mmap, tmp_path):
    content, words = DAMAGED[what]
    with pytest.raises(RuntimeError, match=f"(?s)a.safetensors: .*{words}.*") as told:
        mge.load(written(tmp_path / "a.safetensors", content), mmap=mmap)
    assert "\n  fix: " in str(told.value) and len(str(told.value).splitlines()) <= 6


def test_bytes_that_are_no_bool_are_refused(mmap, tmp_path):
    path = written(tmp_path / "a.safetensors", safetensors({"x": ("BOOL", [2], b"\1\2")}))
    with pytest.raises(RuntimeError, match="'x' is BOOL and has bytes other than 0 and 1"):
        mge.load(path, mmap=mmap)["x"]


def test_other_shapes_than_the_module_has_are_named(mmap, tmp_path):
    tensors = {"weight": ("F32", [3, 2], bytes(24)), "bias": ("F32", [2], bytes(8))}
    found = mge.load(written(tmp_path / "a.safetensors", safetensors(tensors)), mmap=mmap)
    words = r"param `weight` shape mismatch, should be \(2, 3\), get \(3, 2\)"
    with pytest.raises(ValueError, match=words):
        M.Linear(3, 2).load_state_dict(found)


def test_readers_of_models_say_what_a_file_of_tensors_is():
    words = "it holds tensors and no model.*\n  fix: net.load_state_dict"
    with pytest.raises(fx.ModelFileError, match=words):
        fx.load(io.BytesIO(safetensors({})))
