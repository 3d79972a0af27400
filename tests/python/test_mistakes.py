"""Mistakes of programs for networks, data, optimizers, traces and files: each is told with its value and a way out (more of them: test_errors.py)."""

import copy
import re
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import data, distributed, onnx, quantization, traced_module
from megengine._words import switches
from megengine.autodiff import GradManager
from megengine.core.random_state import default_random_state
from megengine.data import transform as T
from megengine.jit import trace

X = mge.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
V = mge.tensor(np.ones((2, 4, 16), np.float32))
IMAGE = mge.tensor(np.ones((2, 3, 8, 8), np.float32))
LABELS = mge.tensor([0, 1])
BOXES = mge.tensor([[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 9.0, 9.0]])
SAMPLES = data.dataset.ArrayDataset(np.ones((5, 3), np.float32), np.zeros(5, np.int32))


def parameter():
    return mge.Parameter(np.ones(2, np.float32))


def batches_of_vectors():
    sampler = data.SequentialSampler(SAMPLES, batch_size=2)
    return list(data.DataLoader(SAMPLES, sampler, transform=T.Compose([T.Resize((2, 2))])))


# name: (mistake, class, what its text says)
MISTAKES = {
    "no kernel": (lambda: M.Conv2d(3, 4, 0), ValueError, "kernel_size: 0.*at least 1"),
    "no stride": (lambda: M.Conv2d(3, 4, 3, stride=(1, 0)), ValueError, r"stride: 0 in \(1, 0\)"),
    "padding by name": (lambda: M.Conv2d(3, 4, 3, padding="big"), ValueError, "padding: 'big'.*'same', 'valid'"),
    "negative padding": (lambda: M.Conv2d(3, 4, 3, padding=-1), ValueError, "padding: -1"),
    "half a padding": (lambda: M.Conv2d(3, 4, 3, padding=1.5), TypeError, "padding: 1.5"),
    "no padding": (lambda: M.Conv2d(3, 4, 3, padding=None), TypeError, "padding: None.*'valid'"),
    "no channels": (lambda: M.Conv2d(0, 4, 3), ValueError, "Conv2d: in_channels is 0"),
    "channels in words": (lambda: M.Conv2d("3", 4, 3), TypeError, "Conv2d: in_channels is '3'"),
    "features below 0": (lambda: M.Linear(-1, 2), ValueError, "Linear: in_features is -1"),
    "half a feature": (lambda: M.Linear(2.5, 2), TypeError, "Linear: in_features is 2.5"),
    "no states": (lambda: M.LSTM(16, 0), ValueError, "hidden_size is 0"),
    "no window": (lambda: M.MaxPool2d(0), ValueError, "MaxPool2d: kernel_size=0"),
    "rate in words": (lambda: M.Dropout("0.5")(X), ValueError, "Dropout: drop_prob .* got '0.5'"),
    "a class for a layer": (lambda: M.Sequential(M.ReLU, M.ReLU()), TypeError, r"the class ReLU.*ReLU\(\.\.\.\)"),
    "layer behind the last": (lambda: M.Sequential(M.ReLU())[3], IndexError, "^list index out of range.*index 3 of a Sequential with 1"),
    "smoothing above 1": (lambda: F.nn.cross_entropy(X, LABELS, label_smooth=2.0), ValueError, "label_smooth 2.0"),
    "label out of range": (lambda: F.nn.cross_entropy(X, mge.tensor([0, 3])).numpy(), IndexError, "cross_entropy: label 3 .*0 to 2"),
    "other ranks": (lambda: M.MultiHeadAttention(16, 4)(V, V, X), ValueError, r"\[2, 4, 16\], \[2, 3\]"),
    "no map": (lambda: F.vision.remap(IMAGE, X), ValueError, r"map_xy \[2, 3\]"),
    "image without pixels": (batches_of_vectors, ValueError, r"Resize: the image of a sample has shape \(3,\)"),
    "function as transform": (lambda: data.DataLoader(SAMPLES, transform=abs), TypeError, "got builtin.*Transform"),
    "state of nothing": (lambda: optim.SGD([parameter()], lr=0.1).load_state_dict({"x": 1}), ValueError, r"\['x'\].*state_dict\(\)"),
    "norm below 0": (lambda: optim.clip_grad_norm([parameter()], -1.0), ValueError, "max_norm.*-1.0"),
    "negative deviation": (lambda: mge.random.normal(0, -1, (2,)), ValueError, "std -1"),
    "scan of a number": (lambda: F.scan(3, X, X), TypeError, "f is 3"),
    "symbolic in words": (lambda: trace(lambda x: x, symbolic="yes"), TypeError, "symbolic must be True or False, got 'yes'"),
    "export of a number": (lambda: onnx.export(3, X, None), TypeError, r"of type int, .*export\(net"),
    "export of an array": (lambda: onnx.export(np.ones(99), X), TypeError, r"of type ndarray, .*export\(net"),
    "overlap above 1": (lambda: F.vision.nms(BOXES, BOXES[:, 0], 5), ValueError, "iou_thresh is 5.0.*0 to 1"),
    "overlap below 0": (lambda: F.vision.nms(BOXES, BOXES[:, 0], -0.1), ValueError, "iou_thresh is -0.1.*0 to 1"),
    "boxes below 0": (lambda: F.vision.nms(BOXES, BOXES[:, 0], 0.5, -1), ValueError, "max_output is -1.*None for all"),
    "overlap above 1 of classes": (lambda: F.vision.batched_nms(BOXES, BOXES[:, 0], LABELS, 5), ValueError, "iou_thresh is 5.0"),
    "norm of no gradient": (lambda: optim.clip_grad_norm(X, 1.0), ValueError, r"clip_grad_norm: no grad .*\[2, 3\].*parameters\(\)"),
    "norm of a network": (lambda: optim.clip_grad_norm(M.ReLU(), 1.0), TypeError, r"clip_grad_norm: got a ReLU.*parameters\(\)"),
    "limit of no gradient": (lambda: optim.clip_grad_value(X, -1, 1), ValueError, "clip_grad_value: no grad"),
    "integers of floats": (lambda: quantization.quantize(M.Sequential(M.Linear(2, 2))), ValueError, "Sequential has no layer.*quantize_qat"),
    "launcher of a number": (lambda: distributed.launcher(3), TypeError, "func is 3.*n_gpus=2"),
    "pool of integers": (lambda: F.max_pool2d(IMAGE.astype("int32"), 2), TypeError, r"i32\[2, 3, 8, 8\].*cast to float32"),
    "axis behind the last": (lambda: F.sum(X, axis=5), ValueError, "sum: axis 5 of a tensor with 2 axes.*-2 to 1"),
    "axis before the first": (lambda: F.gather(X, -3, mge.tensor([[0]])), ValueError, "gather: axis -3 .*-2 to 1"),
    "axis of a number": (lambda: F.cumsum(mge.tensor(1.0), 0), ValueError, "cumsum: axis 0 of a tensor with 0 axes.*leave the axis out"),
    "stack of shapes": (lambda: F.stack([X, X[:1]]), ValueError, r"\[2, 3\], \[1, 3\].*F\.concat"),
    "stack of nothing": (lambda: F.stack([]), ValueError, "stack: no tensors.*at least one"),
    "join without a list": (lambda: F.concat(X, X), TypeError, r"concat: axis is a Tensor of shape \[2, 3\].*F\.concat\(\[a, b\]"),
    "squeeze of rows": (lambda: F.squeeze(X, 0), ValueError, r"axis 0 of \[2, 3\] is not 1 long.*flatten"),
    "two of three axes": (lambda: F.transpose(V, (0, 2)), ValueError, r"\[0, 2\] does not name each of 3 axes.*F\.swapaxes"),
    "image without a batch": (lambda: F.vision.interpolate(IMAGE[0], scale_factor=2), ValueError, r"inp has shape \[3, 8, 8\].*expand_dims"),
    "size and factor": (lambda: F.vision.interpolate(IMAGE, (4, 4), 2), ValueError, r"scale_factor must be None when size is provided.*exactly one of"),
    "size of 0": (lambda: F.vision.interpolate(IMAGE, (0, 4)), ValueError, r"\[8, 8\] would become \[0, 4\].*at least 1"),
    "norm of other features": (lambda: M.LayerNorm(4)(X), ValueError, r"shape \[2, 3\], which does not end in \[4\].*normalized_shape"),
    "sequence without a batch": (lambda: M.LSTM(3, 2)(X), ValueError, r"shape \(2, 3\).*expand_dims"),
    "sequence of other features": (lambda: M.GRU(3, 2)(V), ValueError, r"GRU: input_size is 3, and .*\(2, 4, 16\).*input_size=16"),
    "optimizer of another model": (lambda: optim.SGD([parameter()], 0.1).load_state_dict(optim.SGD([parameter(), parameter()], 0.1).state_dict()), ValueError, r"\[1\] here and \[2\].*fix"),
    "checkpoint for a state": (lambda: M.Linear(2, 2).load_state_dict({"net": {}, "epoch": 3}), KeyError, r"unused.*net, epoch.*state_dict\['net'\]"),
    "export without inputs": (lambda: onnx.export(M.ReLU(), "a.onnx"), TypeError, r"'a\.onnx'.*no Tensor.*export\(net, inputs, path\)"),
    "mean of other channels": (lambda: T.Normalize(mean=[1, 2]).apply(np.ones((4, 4, 3))), ValueError, r"mean has 2 values.*\(4, 4, 3\).*ToMode"),
    "rows of other lengths": (lambda: mge.tensor([[1, 2], [3]]), ValueError, "ragged.*one length"),
    "list of tensors": (lambda: mge.tensor([X, X[:1]]), ValueError, r"F\.stack"),
    "dataset of torch": (lambda: data.TensorDataset, AttributeError, r"use data\.dataset\.ArrayDataset"),
    "transform of torch": (lambda: T.ToTensor, AttributeError, r"use T\.ToMode"),
    "configuration by position": (lambda: quantization.quantize_qat(M.ReLU(), "ema"), TypeError, "inplace must be True or False, got a str.*qconfig="),
    "schedule of a network": (lambda: optim.StepLR(M.ReLU(), 3), TypeError, "should be Optimizer, got .*ReLU.*pass the optimizer"),
    "image for a convolution": (lambda: M.Conv2d(3, 4, 3)(IMAGE[0]), ValueError, r"the ranks differ, 3 and 4.*expand_dims\(x, 0\)"),
    "keys of another width": (lambda: F.scaled_dot_product_attention(IMAGE, IMAGE[..., :4], IMAGE), ValueError, r"one width.*\[n, heads, length, width\]"),
    "prefix of a wrapper": (lambda: M.Linear(2, 2).load_state_dict({"module.bias": 0, "module.weight": 0}), KeyError, r"removeprefix\('module\.'\)"),
    "weight of the other order": (lambda: M.Linear(3, 2).load_state_dict({"weight": np.ones((3, 2)), "bias": np.ones(2)}), ValueError, r"should be \(2, 3\), get \(3, 2\).*array\.T"),
    "bias of torch": (lambda: M.Conv2d(3, 4, 1, bias=True).load_state_dict({"weight": np.ones((4, 3, 1, 1)), "bias": np.ones(4)}), ValueError, r"array\.reshape\(1, 4, 1, 1\)"),
    "file before the object": (lambda: mge.save("a.pkl", {"a": 1}), TypeError, r"the file is a dict, and the object is 'a\.pkl'.*save\(object, path\)"),
    "average of a network": (lambda: optim.EMA(M.ReLU()), TypeError, r"got a ReLU.*parameters\(\)"),
    "norm in words": (lambda: optim.clip_grad_norm([parameter()], "1"), TypeError, "max_norm must be a number, got '1'"),
    "tiles below 0": (lambda: F.tile(X, (2, -1)), ValueError, r"tile: reps \[2, -1\]"),
    "identity below 0": (lambda: F.eye(-2), ValueError, r"eye: \[-2, -2\]"),
    "shape of one batch": (lambda: X.reshape(4, 2), ValueError, r"6 elements do not fill 8.*-1.*x\.shape\[0\]"),
    "schedule of torch": (lambda: optim.LinearLR, AttributeError, r"use optim\.LambdaLR"),
    "mean of integers": (lambda: F.avg_pool2d(IMAGE.astype("int32"), 2), TypeError, r"i32\[2, 3, 8, 8\].*cast to float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_tells_value_and_way_out(name):
    mistake, kind, words = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    assert len(str(caught.value).splitlines()) <= 6
    assert re.search(words, str(caught.value), re.S), str(caught.value)


def test_gradients_of_nothing_are_told():
    w = parameter()
    gm = GradManager().attach(w)
    early = w * w
    with pytest.warns(UserWarning, match="depends on none of the 1 attached tensors.*inside 'with gm:'"), gm:
        gm.backward(early)
    assert w.grad is None
    gm.attach(parameter())
    with gm:  # one of two is enough
        gm.backward(w * w)
    assert w.grad.tolist() == [2, 2]


def test_quantizing_what_saw_no_data_is_told():
    def net():
        return quantization.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(3, 3), M.DequantStub()))

    with pytest.warns(UserWarning, match=r"(?s)observers of 2 layers have seen no data.*: 0, 1\n  fix: "):
        quantization.quantize(net())
    seen = net()
    seen(X)
    assert (quantization.quantize(seen.eval())(X).numpy() != 0).any()


def test_indices_that_are_floats_are_told():
    with pytest.warns(UserWarning, match="embedding: float32 indices are truncated"):
        F.embedding(mge.tensor([1.0]), X)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("layer", [lambda: M.Dropout(0.5), lambda: M.BatchNorm1d(3)])
def test_a_step_after_eval_names_training(layer, symbolic):
    net = M.Sequential(M.Linear(3, 3), layer())
    step = trace(lambda x: net(x).sum(), symbolic=symbolic)
    step(X)
    net.eval()
    with pytest.raises(mge.jit.TraceError, match=r"fix: .*train\(\) or eval\(\) .*module\.training"):
        step(X)


def test_a_value_under_a_limit_names_it():
    @trace(memory_limit="1GB")
    def reads(x):
        return x * x.sum().item()

    with pytest.raises(ValueError, match=r"or use symbolic=False without memory_limit, which implies symbolic=True"):
        reads(X)


def test_a_branch_of_a_traced_module_is_told():
    class Branch(M.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.warns(UserWarning, match=r"(?s)the value of gt_out is read, .*same for every input.*F\.where"):
        traced_module.trace_module(Branch(), X)


def test_products_of_one_line_are_one_line():
    net = M.Sequential(*[M.Linear(8, 8) for _ in range(4)])
    gm, optimizer = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1)

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            gm.backward(net(x).sum())
        optimizer.step().clear_grad()

    step(mge.tensor(np.ones((128, 8), np.float32)))
    step.kernels()
    lines = [line for line in step.explain().splitlines() if "product at" in line]
    assert len(set(lines)) == len(lines) and any(line.endswith(" of them") for line in lines), lines


def test_a_constant_that_varies_is_told():
    f = trace(lambda x: F.exp(x), symbolic=True)
    f(np.ones(2, np.float32))
    with pytest.raises(mge.jit.TraceError, match=r"fix: numbers and NumPy arrays are constants .*megengine\.tensor\(value\)"):
        f(np.zeros(2, np.float32))


def test_an_archive_of_numpy_is_told(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(RuntimeError, match=r"cannot read .*a\.npz.*it is an archive of NumPy's\n  fix: read it with numpy\.load"):
        mge.load(tmp_path / "a.npz")


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_second_accumulation_names_clear_grad(symbolic):
    w = parameter()
    gm = GradManager().attach(w)

    @trace(symbolic=symbolic)
    def step(x):
        with gm:
            gm.backward((w * x).sum())

    step(mge.tensor([1.0, 2.0]))
    with pytest.raises(mge.jit.TraceError, match=r"fix: .*clear_grad\(\) .*docs/accumulation\.md"):
        step(mge.tensor([1.0, 2.0]))


class Holder(M.Module):
    def __init__(self):
        super().__init__()
        self.inner = M.Sequential(M.Linear(2, 3))
        self.inner.rule = lambda x: x


def test_what_cannot_be_copied_or_saved_is_told_with_its_path(tmp_path):
    traced = trace(lambda x: x)
    with pytest.raises(TypeError, match=rf"(?s)<lambda> \({re.escape(__file__)}:\d+\) cannot be copied.*fix: copy fn.__wrapped__"):
        copy.deepcopy(traced)
    with pytest.raises((AttributeError, TypeError), match=r"(?s)^save: inner\.rule is <function.*fix: save the state_dict"):
        mge.save(Holder(), tmp_path / "a.pkl")
    with pytest.raises((AttributeError, TypeError), match=r"^save: \['a'\]\[1\] is <function"):
        mge.save({"a": [1, lambda: 3]}, tmp_path / "a.pkl")
    with pytest.raises(TypeError, match=r"^save: \['step'\] is <trace "):
        mge.save({"step": traced}, tmp_path / "a.pkl")
    assert not (tmp_path / "a.pkl").exists()


def test_variables_that_nobody_reads_are_told():
    given = {"MEGJIT_COMPIL": "sync", "MEGJIT_CHECK": "maybe", "MEGJIT_DUMP": "all", "MEGJIT_QQ": "1", "MEGJIT_COMPILE_BUDGET": "2.5", "OMP_NUM_THREADS": "x", "HOME": "/"}
    told = switches.remarks(given)
    assert [remark.split("=")[0] for remark in told] == ["MEGJIT_COMPIL", "MEGJIT_CHECK", "MEGJIT_QQ", "OMP_NUM_THREADS"]
    assert told[0].endswith("fix: write MEGJIT_COMPILE") and "0 or 1" in told[1] and "docs/devices.md" in told[2]
    done = subprocess.run([sys.executable, "-c", "import megengine"], env={"MEGJIT_SIKP": "fuse"}, capture_output=True, text=True)
    assert "MEGJIT_SIKP=fuse has no effect" in done.stderr and "write MEGJIT_SKIP" in done.stderr


def test_a_traced_function_says_what_it_is():
    f = trace(lambda x: F.exp(x) * 2 + 1, symbolic=True, opt_level=3)
    assert re.fullmatch(r"<trace <lambda> \(.*:\d+\): mode: symbolic, opt_level=3; versions: not called yet>", repr(f))
    f(X)
    assert repr(f).endswith("versions: 1 version; planned: 48 B; generated kernels: 1>")
    assert "<td>48 B</td>" in f._repr_html_() and "&lt;lambda&gt;" in f._repr_html_()


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}, {"opt_level": 3}])
def test_a_traced_function_whose_first_call_was_refused_says_so(options):
    f = trace(lambda x: F.exp(x) * 2 + 1, memory_limit=1, **options)
    with pytest.raises(MemoryError):
        f(X)
    assert repr(f).endswith("versions: 1 version, no call has run>") and str(f) == repr(f)
    assert "no call has run" in f._repr_html_() and f.explain().startswith("1 version")
    for ask in (f.kernels, f.memory_plan, f.graph_text, f.graph_html):
        with pytest.raises(RuntimeError, match="no call of this function has run yet\n  fix: call it once first; plan"):
            ask()


def test_a_batch_that_fits_is_proposed():
    w = mge.Parameter(np.ones((64, 64), np.float32))

    @trace(symbolic=True, memory_limit="1MB")
    def step(x):
        return (F.exp(F.dropout(x @ w, 0.5)) @ w).sum()

    def batch(rows):
        return mge.tensor(np.ones((rows, 64), np.float32))

    mge.random.seed(1)
    with pytest.raises(MemoryError, match=r"fix: raise the limit to \d+, or take a batch of \d+, which fits") as caught:
        step(batch(8192))
    assert default_random_state().counter == 0  # neither the refused call has drawn anything, nor those that looked for a batch
    rows = int(re.search(r"batch of (\d+)", str(caught.value))[1])
    assert step(batch(rows)).shape == ()
    with pytest.raises(MemoryError):
        step(batch(rows + rows // 8))
    constants = mge.Parameter(np.ones((1024, 1024), np.float32))
    with pytest.raises(MemoryError, match="fix: raise the limit to .*, or take a smaller model, or fewer results"):
        trace(lambda x: (x @ constants).sum(), memory_limit="1MB")(mge.tensor(np.ones((4, 1024), np.float32)))
