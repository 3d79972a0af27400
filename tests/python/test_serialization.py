"""save and load: round trips, devices, and what a file may not do."""

import collections
import importlib
import io
import os
import pickle

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import fx, traced_module
from megengine.serialization import RefusedClassError, dmap, load, map_device, save
from megengine.tensor import Parameter, Tensor


class Payload:
    """A class of a user's program."""

    value = 3


class Doubling(M.Module):
    def forward(self, x):
        return x * 2


class Exploit:
    def __reduce__(self):
        return os.system, ("true",)


def round_trip(obj, **options):
    file = io.BytesIO()
    save(obj, file)
    file.seek(0)
    return load(file, **options)


@pytest.mark.parametrize(
    "obj",
    [
        None,
        1,
        1.5,
        True,
        "text",
        b"bytes",
        [1, (2, {3})],
        {"a": {"b": [None]}},
        2**80,
        1j,
        range(3),
        slice(1, 2),
        bytearray(b"x"),
        frozenset({1}),
        collections.OrderedDict(a=1),
        collections.deque([1]),
        collections.Counter("aab"),
        collections.defaultdict(list, a=[1]),
    ],
)
def test_containers_and_numbers_come_back(obj):
    back = round_trip(obj)
    assert back == obj and type(back) is type(obj)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int64", "uint8", "bool", "complex64", "U3", "S2", "M8[s]"]
)
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_arrays_come_back_in_every_protocol(dtype, protocol, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save(
        {"array": array, "scalar": array[0, 1], "dtype": array.dtype},
        tmp_path / "f.pkl",
        pickle_protocol=protocol,
    )
    back = load(tmp_path / "f.pkl")
    np.testing.assert_array_equal(back["array"], array)
    assert back["scalar"] == array[0, 1] and back["dtype"] == array.dtype


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_structured_arrays_come_back(protocol):
    array = np.array([(1.5, 2, "a")], [("x", ">f4"), ("n", "i8"), ("s", "U2")])
    back = load(io.BytesIO(pickle.dumps(array, protocol)))
    assert back.dtype == array.dtype and back.tolist() == array.tolist()


@pytest.mark.parametrize(
    "state",
    [
        (3, "<", None, None, None, 64, 4, 0),
        (3, "|", None, ("a",), {"a": (np.dtype("f8"), 4)}, 8, 1, 16),
        (3, "|", None, ("a",), {"a": (np.dtype("f8"), -8)}, 8, 1, 16),
        (3, "|", (np.dtype("f8"), (2**40,)), None, None, 8, 1, 0),
        (3, "|", None, None, None, -1, -1, 63),
    ],
)
def test_dtypes_that_lie_are_refused(state):
    class Lying:
        def __reduce__(self):
            return np.dtype, ("V8", False, True), state

    with pytest.raises(RuntimeError, match="a dtype that"):
        round_trip(Lying())


@pytest.mark.parametrize("rest", [(), (None,), ((None, ()),), ((None, (b"s", 0, 1, 1)),), ({},)])
def test_dates_without_a_unit_are_refused(rest):
    """NumPy reads the unit although it is not there, and the process ends."""

    class Lying:
        def __reduce__(self):
            return np.dtype, ("M8", False, True), (3, "<", None, None, None, -1, -1, 0, *rest)

    with pytest.raises(RuntimeError, match="a dtype that"):
        round_trip(Lying())


def of_numpy(name, *args):
    """A pickle that makes a class of NumPy's by its `__new__`."""
    return b"\x80\x02cnumpy\n" + name + b"\n" + pickle.dumps(args, 2)[2:-1] + b"\x81."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}" + b")" + b"\x85" * 300_000 + b"K\x01s.", "nest more than"),
        (b"\x80\x04\x8f(" + b")" + b"\x85" * 300_000 + b"\x90.", "nest more than"),
        (of_numpy(b"void", 10**7), "made by __new__"),
        (of_numpy(b"ndarray", (10**7,)), "made by __new__"),
    ],
    ids=["a key", "an element", "void", "ndarray"],
)
def test_no_pickle_ends_the_process_or_names_a_size(content, message):
    with pytest.raises(RuntimeError, match=message):
        load(io.BytesIO(content))


@pytest.mark.parametrize("shape", [(3,), (-1, -1), (1, 0), (2**62,)])
def test_arrays_of_objects_that_lie_about_their_shape_are_refused(shape):
    """NumPy reads behind the end of the list."""

    class Lying:
        def __reduce__(self):
            return np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), (1, shape, np.dtype("O"), False, [1])

    with pytest.raises(RuntimeError, match="not of its shape"):
        round_trip(Lying())


def test_tuples_as_deep_as_python_pickles_come_back():
    deep = ()
    for _ in range(300):
        deep = (deep, 1)
    assert round_trip({deep: [deep, (deep,)]}) == {deep: [deep, (deep,)]}


def test_object_and_fortran_arrays_come_back():
    assert round_trip(np.array([1, "a", None], dtype=object)).tolist() == [1, "a", None]
    assert round_trip(np.zeros((2, 3), order="F")).flags.f_contiguous


def test_arrays_of_the_other_numpy_generation_come_back():
    old = pickle.dumps(np.arange(3), 2).replace(b"numpy._core", b"numpy.core")
    new = old.replace(b"numpy.core", b"numpy._core")
    for data in (old, new):
        assert load(io.BytesIO(data)).tolist() == [0, 1, 2]


def test_tensors_keep_value_dtype_and_class():
    state = round_trip(
        {"w": Parameter(np.ones((2, 2), "float32")), "n": Tensor([1, 2], dtype="int32")}
    )
    assert type(state["w"]) is Parameter and type(state["n"]) is Tensor
    assert state["n"].numpy().dtype == np.int32 and state["n"].numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    "location", ["cpu0", {"xpux": "cpu0"}, {"xpux": "cpu0", "cpu0": "gpu7"}, lambda device: "cpu0"]
)
def test_map_location_moves_tensors_once(location):
    assert str(round_trip(Tensor([1.0], device="xpux"), map_location=location).device).startswith(
        "cpu0"
    )


def test_a_dmap_block_serves_plain_pickle_and_ends():
    data = pickle.dumps(Tensor([1.0], device="xpux"))
    seen = []
    with dmap(lambda device: seen.append(device) or "cpu0"):
        pickle.loads(data)
    pickle.loads(data)
    assert len(seen) == 1 and seen[0].startswith("xpux") and Tensor.dmap_callback is None


def test_a_mapping_of_gpu1_does_not_take_gpu10():
    with dmap({"gpu1": "cpu1", "cpu0:1": "cpu3"}):
        moved = [map_device(d) for d in ("gpu1:0", "gpu1", "gpu10:0", "cpu0:1", "cpu0:0")]
    assert moved == ["cpu1", "cpu1", "gpu10:0", "cpu3", "cpu0:0"]


def test_a_map_location_of_the_wrong_type_is_refused():
    with pytest.raises(TypeError, match="map_location must be"):
        round_trip(1, map_location=3)


def test_modules_of_ours_that_do_not_exist_are_not_looked_for(monkeypatch):
    with pytest.raises(RefusedClassError):  # the first read imports parts of the package
        load(io.BytesIO(b"cmegengine.module.nowhere\nLinear\n."))
    looked = []
    monkeypatch.setattr("importlib.import_module", looked.append)
    with pytest.raises(RefusedClassError, match="megengine.module.nowhere.Linear"):
        load(io.BytesIO(b"cmegengine.module.nowhere\nLinear\n."))
    assert not looked


def test_a_class_of_another_program_is_refused_with_the_way_out(monkeypatch):
    data = pickle.dumps(Payload())
    assert load(io.BytesIO(data)).value == 3
    monkeypatch.delattr(f"{__name__}.Payload")
    with pytest.raises(RefusedClassError, match=r"(?s)Payload.*allow_pickle=True.*state_dict"):
        load(io.BytesIO(data))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_cannot_run_code(protocol):
    with pytest.raises(RuntimeError, match="system"):
        load(io.BytesIO(pickle.dumps(Exploit(), protocol)))


@pytest.mark.parametrize(
    "module, name",
    [
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("numpy", "load"),
        ("megengine.serialization", "save"),
        ("megengine.tensor", "Tensor.__init__"),
        ("megengine.tensor", "np"),
        ("numpy.core.multiarray", "fromfile"),
        ("megengine.module..os", "system"),
        ("copyreg", "add_extension"),
        ("numpy", "ndarray.tofile"),
    ],
)
def test_functions_and_dotted_names_are_refused(module, name):
    data = (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
    )
    with pytest.raises(RuntimeError):
        load(io.BytesIO(data + b"\x93."))


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        Call(range, 10**12),
        Call(list, Call(range, 10**12)),
        Call(bytearray, 10**12),
        Call(bytes, 10**12),
        Call(np.ndarray, (10**12,)),
        Call(np.void, 10**12),
        Call(F.zeros, (10**9,)),
        Call(M.Linear, 10**5, 10**5),
    ],
)
def test_a_small_file_cannot_fill_the_memory(call):
    with pytest.raises(RuntimeError, match="truncated, damaged"):
        round_trip(call)


def test_a_file_cannot_change_classes():
    # BUILD with slot state would be setattr(Counter, "update", list)
    data = (
        pickle.dumps(collections.Counter, 2)[:-1]
        + pickle.dumps((None, {"update": list}), 2)[2:-1]
        + b"b."
    )
    before = collections.Counter.update
    with pytest.raises(RuntimeError, match="state for a class"):
        load(io.BytesIO(data))
    assert collections.Counter.update is before


@pytest.mark.parametrize("opcode", [b"R", b"o"])
def test_functions_of_graphs_are_named_and_not_called(opcode):
    assert load(io.BytesIO(pickle.dumps(getattr))) is getattr
    called = b"cbuiltins\ngetattr\n" + pickle.dumps(("text", "upper"), 0)[:-1] + b"R."
    if opcode == b"o":
        called = b"(cbuiltins\ngetattr\nVtext\nVupper\no."
    with pytest.raises(RuntimeError, match="a call of getattr"):
        load(io.BytesIO(called))


def test_a_file_cannot_change_a_member_of_an_enum():
    from megengine.quantization.utils import QuantMode

    data = pickle.dumps(QuantMode.SYMMERTIC, 2)[:-1] + pickle.dumps({"_name_": "x"}, 2)[2:-1] + b"b."
    with pytest.raises(RuntimeError, match="state for a class"):
        load(io.BytesIO(data))
    assert QuantMode.SYMMERTIC.name == "SYMMERTIC"


def test_what_the_caller_trusts_is_built():
    assert round_trip(Payload(), trusted=[Payload]).value == 3
    assert round_trip(Payload(), trusted={f"{__name__}.Payload": Payload}).value == 3


def test_a_checkpoint_needs_no_flag():
    model = M.Sequential(M.Linear(2, 3), M.BatchNorm1d(3))
    adam = optim.Adam(model.parameters(), lr=0.1)
    checkpoint = collections.OrderedDict(
        epoch=np.int64(3),
        loss=np.float32(0.5),
        dtype=np.dtype("float32"),
        kind=np.float16,
        model=model.state_dict(),
        optimizer=adam.state_dict(),
        random=np.random.RandomState(0).get_state(),
    )
    back = round_trip(checkpoint)
    adam.load_state_dict(back["optimizer"])
    model.load_state_dict(back["model"])
    assert back["epoch"] == 3 and back["kind"] is np.float16


def test_a_length_beyond_the_file_is_an_error_and_not_an_allocation(tmp_path):
    for opcode in (pickle.BYTEARRAY8, pickle.BINBYTES8, pickle.BINUNICODE8):
        (tmp_path / "f").write_bytes(
            b"\x80\x05" + opcode + (1 << 40).to_bytes(8, "little") + b"abc."
        )
        with pytest.raises(RuntimeError):
            load(tmp_path / "f")


def test_asking_for_another_pickle_module_is_asking_for_code():
    class Other:
        dump, load = staticmethod(pickle.dump), staticmethod(pickle.load)

    file = io.BytesIO()
    save(Payload(), file, pickle_module=Other)
    file.seek(0)
    assert load(file, pickle_module=Other).value == 3


@pytest.mark.parametrize("kept", [0, 1, 10, 100, -1])
def test_a_truncated_file_is_named(tmp_path, kept):
    path = tmp_path / "weights.pkl"
    path.write_bytes(pickle.dumps({"w": np.zeros(100)})[:kept])
    with pytest.raises(RuntimeError, match="(?s)weights.pkl.*truncated"):
        load(path)


def test_random_bytes_are_an_error_and_never_a_crash(tmp_path):
    rng = np.random.RandomState(0)
    whole = pickle.dumps({"w": np.zeros(9), "t": [1, "a"]})
    for _ in range(1000):
        data = bytearray(whole)
        for place in rng.randint(0, len(data), 3):
            data[place] = rng.randint(256)
        try:
            load(io.BytesIO(bytes(data)))
        except RuntimeError:
            pass


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.pkl")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pkl"
    save([1], path)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        save(lambda: 0, path)
    assert load(path) == [1] and os.listdir(tmp_path) == ["model.pkl"]


def test_saving_through_a_link_keeps_the_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    save([2], tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and load(tmp_path / "target") == [2]


def test_saving_to_a_device_file_works():
    save([1], os.devnull)
    assert not os.path.isfile(os.devnull)


def test_a_saved_file_keeps_the_mode_of_the_one_it_replaces(tmp_path):
    path, link = tmp_path / "a.mge", tmp_path / "link.mge"
    save({"x": 1}, path)
    path.chmod(0o640)
    link.symlink_to(path)
    save({"x": 2}, link)
    assert path.stat().st_mode & 0o777 == 0o640 and link.is_symlink()
    assert load(path) == {"x": 2}


def test_classes_of_libraries_are_refused_wherever_they_are_installed(tmp_path, monkeypatch):
    code = "class Kept:\n    def __setstate__(self, state):\n        raise SystemExit('code of the file has run')\n"
    for folder in ("venv/site-packages", "usr/dist-packages", "zipped.zip/site-packages"):
        home = tmp_path / folder
        home.mkdir(parents=True)
        name = "library_" + folder.split("/")[0].replace(".", "_")
        (home / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(home)
        module = importlib.import_module(name)
        thing = module.Kept()
        thing.a = 1
        save(thing, tmp_path / "thing.mge")
        with pytest.raises(RefusedClassError, match=name):
            load(tmp_path / "thing.mge")


@pytest.mark.parametrize("kind", ["GraphModule", "TracedModule", "one of a program's own"])
def test_load_reads_the_module_of_a_model_file(tmp_path, kind):
    class Leaves(fx.Tracer):
        def is_leaf_module(self, module, name):
            return True

    net, x = M.Sequential(M.Linear(2, 3), Doubling()), Tensor([[1.0, -1.0]])
    if kind == "TracedModule":
        saved, trusted = traced_module.trace_module(M.Sequential(net[0], M.ReLU()), x), ()
    else:
        own = kind != "GraphModule"
        saved = fx.GraphModule(net, Leaves().trace(net)) if own else fx.symbolic_trace(net)
        trusted = [Doubling] if own else ()
    path, stream = tmp_path / "net.mge", io.BytesIO()
    saved.save(path)
    saved.save(stream)
    stream.seek(0)
    for source in (path, str(path), stream):
        found = load(source, trusted=trusted, map_location="cpu0")
        assert type(found) is type(saved)
        np.testing.assert_array_equal(found(x.to("cpu0")).numpy(), saved(x).numpy())
    if trusted:
        with pytest.raises(RuntimeError, match=r"Doubling.*not admitted.*\n  fix: .*trusted"):
            load(path)
