"""Names and arguments of PyTorch, of JAX, and of MegEngine before 1.0, say what they are called here; errors keep their classes, and names that exist are as they were."""

import importlib
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import _words, data, distributions
from megengine._words import table

X = mge.Tensor(np.ones((2, 3), np.float32))
NAMES = {
    "x.view": (
        lambda: X.view(3, 2),
        "'Tensor' object has no attribute 'view'\n  fix: use x.reshape(shape), as in x.reshape(2, -1)",
    ),
    "parameter.permute": (
        lambda: mge.Parameter([1.0]).permute,
        "'Parameter' object has no attribute 'permute'\n  fix: use x.transpose",
    ),
    "Tensor.cuda": (
        lambda: mge.Tensor.cuda,
        "type object 'Tensor' has no attribute 'cuda'\n  fix: use x.to('gpu0')",
    ),
    "F.cat": (
        lambda: F.cat,
        "module 'megengine.functional' has no attribute 'cat'\n  fix: use F.concat",
    ),
    "F.nn.hardswish": (
        lambda: F.nn.hardswish,
        "module 'megengine.functional.nn' has no .*\n  fix: use F.hswish",
    ),
    "F.loss.mse_loss": (lambda: F.loss.mse_loss, "fix: use F.nn.square_loss"),
    "M.CTCLoss": (
        lambda: M.CTCLoss,
        "module 'megengine.module' has no .*\n  fix: use F.nn.ctc_loss",
    ),
    "net.cuda": (
        lambda: M.Linear(2, 3).cuda(),
        "'Linear' object has no attribute 'cuda'\n  fix: use megengine.set_default_device",
    ),
    "F.add_axis": (lambda: F.add_axis, "fix: use F.expand_dims"),
    "M.init.constant_": (
        lambda: M.init.constant_,
        "module 'megengine.module.init' has no .*\n  fix: use M.init.fill_",
    ),
    "mge.Graph": (lambda: mge.Graph(), "fix: use no block at all"),
    "mge.no_grad": (
        lambda: mge.no_grad(),
        "module 'megengine' has no .*\n  fix: use no block at all",
    ),
    "lr_scheduler.StepLR": (lambda: optim.lr_scheduler.StepLR, "has no attribute 'StepLR'\n  fix: use optim.StepLR"),
    "distributions.Categorical": (
        lambda: distributions.Categorical,
        "module 'megengine.distributions' has no attribute 'Categorical'\n  fix: use megengine.random.multinomial",
    ),
    "optim.SparseAdam": (lambda: optim.SparseAdam, "fix: use optim.Adam, which takes the gradients of M.Embedding"),
    "mge.zeros": (lambda: mge.zeros, "fix: use F.zeros"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_from_elsewhere_says_what_it_is_called_here(case):
    read, message = NAMES[case]
    with pytest.raises(AttributeError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read()


USUAL = """abs add addmm all allclose amax amin any arange argmax argmin argsort atan2 baddbmm bernoulli bincount bmm broadcast_to bucketize cat cdist ceil chunk clamp
clone concat cos cosine_similarity cross cummax cumprod cumsum diag diff einsum empty equal erf exp expand eye flatten flip floor full full_like gather ger histc index_add
index_select isclose isfinite isin isnan kron kthvalue lerp linspace log log10 log2 log_softmax logical_and logsumexp masked_fill masked_select matmul max maximum mean median
meshgrid min mm movedim multinomial nan_to_num nonzero norm normal numel ones outer pad permute pow prod quantile rand randn randperm reciprocal relu remainder repeat_interleave
reshape roll rsqrt scatter_add searchsorted sigmoid sort split sqrt squeeze stack std sum take_along_dim tile topk tril triu unbind unique unsqueeze var where""".split()
LAYERS = """AdaptiveAvgPool1d AvgPool2d BCEWithLogitsLoss BatchNorm1d BatchNorm2d Bilinear Conv1d Conv2d ConvTranspose2d CrossEntropyLoss Dropout Dropout2d ELU Embedding
Flatten GELU GRU GroupNorm Hardswish Identity InstanceNorm2d KLDivLoss L1Loss LSTM LayerNorm LeakyReLU Linear MSELoss MaxPool2d ModuleDict ModuleList MultiheadAttention
PReLU RMSNorm ReLU Sequential Softmax Softplus Tanh TransformerEncoderLayer Upsample ZeroPad2d""".split()

DISTRIBUTIONS = "Bernoulli Beta Binomial Categorical Dirichlet Exponential Gamma Independent Laplace LogNormal MultivariateNormal Normal Poisson Uniform kl_divergence".split()


def says(holder, name):
    """Whether ``holder`` has the name, or an error says what to write."""
    try:
        getattr(holder, name)
    except AttributeError as error:
        return "\n  fix: " in str(error)
    return True


def test_usual_names_are_there_or_told():
    assert len(USUAL) >= 111 and len(LAYERS) >= 38
    assert not [name for name in USUAL for holder in (F, mge) if not says(holder, name)]
    assert not [name for name in LAYERS if not says(M, name)]
    assert not [name for name in DISTRIBUTIONS if not says(distributions, name)]


def test_names_of_jax_numpy_are_there_or_told():
    names = (Path(__file__).parent / "jax_numpy_names.txt").read_text().split()
    assert len(names) > 400 and not [name for name in names if not says(F, name)]


def test_what_is_said_exists():
    holders = {"F": F, "M": M, "megengine": mge, "x": X, "math": math, "numpy": np, "optim": optim, "data": data, "T": data.transform, "distributions": distributions}
    sentences = [*_words.rows().values(), *table.PATTERNS.values(), *table.OF_ALL.values()]
    said = re.findall(
        r"(?<![\w.'])(F|M|megengine|x|math|numpy|optim|data|T)((?:\.[A-Za-z_]\w*)+)", " ".join(sentences)
    )
    assert len(said) > 250
    for holder, path in said:
        found = holders[holder]
        for name in path[1:].split("."):
            if name in (
                "onnx",
                "dlpack",
                "profiler",
            ):  # modules that are imported by who wants them
                found = importlib.import_module(f"{found.__name__}.{name}")
                continue
            assert hasattr(found, name), f"{holder}{path}"
            found = getattr(found, name)


def test_what_exists_has_no_line_in_the_table():
    holders = {"x": mge.Tensor, "M": M, "init": M.init, "net": M.Module, "mge": mge, "F": F, "optim": optim, "data": data, "T": data.transform, "distributions": distributions}
    for name in _words.rows():
        holder, _, name = name.rpartition(".")
        assert name in ("onnx", "profiler") or not hasattr(holders[holder or "F"], name), (
            f"{holder}.{name}"
        )
    assert not [name for name in table.TENSOR.split() if hasattr(X, name)]


def test_what_has_no_counterpart_says_so():
    for holder, name in (
        (F, "sparse_coo_tensor"),
        (X, "to_sparse"),
        (mge, "cfloat"),
        (F, "cudnn_convolution"),
        (M, "LazyLinear"),
        (X, "lgamma"),
    ):
        with pytest.raises(AttributeError, match="\n  fix: there is no counterpart here: "):
            getattr(holder, name)


def test_such_names_are_not_there_for_programs_that_look():
    assert not hasattr(X, "view") and not hasattr(mge.Tensor, "view") and getattr(X, "view", 3) == 3
    assert "view" not in dir(X) and "reshape" in dir(X) and "cat" not in dir(F)
    with pytest.raises(ImportError):
        exec("from megengine.functional import cat")

    class Viewed(mge.Tensor):
        def view(self):
            return "own"

    own, named = Viewed([1.0]), mge.Tensor([1.0])
    named.view = "a value"
    assert own.view() == "own" and named.view == "a value"


def test_other_names_are_left_to_pythons_own_guess():
    for holder, name in ((X, "reshap"), (F, "concta"), (M.Linear(2, 3), "forwad"), (mge, "tenso")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'$") as caught:
            getattr(holder, name)
        assert caught.value.name == name and caught.value.obj is holder


ARGUMENTS = {
    "F.sum(x, dim=1)": "sum calls it axis",
    "x.mean(dim=1)": "mean calls it axis",
    "F.mean(x, 1, keepdim=True)": "mean calls it keepdims",
    "F.concat([x, x], dim=0)": "concat calls it axis",
    "F.softmax(x, dim=1)": "softmax calls it axis",
    "M.Dropout(p=0.5)": "Dropout calls it drop_prob",
    "DataLoader([], batch_size=4)": "sampler=RandomSampler(dataset, batch_size)",
    "M.GELU(approximate='tanh')": "leave it out: gelu is the exact one",
    "F.gelu(x, approximate='tanh')": "leave it out: gelu is the exact one",
    "F.topk(x, 1, largest=False)": "topk calls it descending",
    "F.nn.cross_entropy(x, y, label_smoothing=0.1)": "cross_entropy calls it label_smooth",
    "F.norm(x, p=1)": "norm calls it ord",
    "F.split(x, 2, dim=1)": "split calls it axis",
    "optim.Adam(net.parameters(), lr=1e-3, amsgrad=True)": "leave it out: no optimizer here has it",
    "F.var(x, unbiased=False)": "leave it out: var divides by n",
    "mge.tensor([1.0], requires_grad=True)": "leave it out: GradManager().attach(x) says",
    "M.ReLU(inplace=True)": "leave it out: the planner decides",
    "F.relu(x, inplace=True)": "leave it out: the planner decides",
    "mine(dim=1)": "",
    "F.exp(nothing=1)": "exp takes x\n",
    "M.Linear(3, 4, use_bias=False)": "Linear takes in_features, out_features, bias, ",
    "M.Conv2d(3, 4, 3, filters=3)": "Conv2d takes in_channels, out_channels, kernel_size, ",
    "optim.Adam(net.parameters(), learning_rate=0.1)": "Adam calls it lr",
}
PROGRAM = """
import sys
import megengine as mge, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.data import DataLoader
x, y, net = F.ones((2, 3)), mge.tensor([0, 1]), M.Linear(2, 3)
def mine():
    pass
"""


def test_an_argument_of_torch_says_what_it_is_called_here():
    """At a prompt, where each line that fails is shown by ``sys.excepthook``."""
    lines = (
        PROGRAM
        + "pass\n"
        + "".join(f"{line}\nprint('---', file=sys.stderr)\n" for line in ARGUMENTS)
    )
    done = subprocess.run(
        [sys.executable, "-iqu"],
        input=lines.replace("    pass\n", "    pass\n\n"),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON_BASIC_REPL": "1"},
    )
    texts = done.stderr.split("---\n")
    assert len(texts) == len(ARGUMENTS) + 1, done.stderr
    for (line, words), text in zip(ARGUMENTS.items(), texts, strict=False):
        assert "got an unexpected keyword argument" in text, f"{line}: {text}"
        assert (f"\n  fix: {words}" in text) if words else ("fix:" not in text), f"{line}: {text}"


@pytest.mark.parametrize("line", [line for line in ARGUMENTS if line.startswith("M.")])
def test_what_a_layer_does_not_take_is_told_where_the_error_is_raised(line):
    with pytest.raises(TypeError, match=re.escape(f"\n  fix: {ARGUMENTS[line]}")):
        eval(line)

    class Mine(M.Dropout):
        pass

    with pytest.raises(TypeError, match=r"^Mine\(\) got an unexpected keyword argument 'p'\n  fix: Dropout calls it drop_prob$"):
        Mine(p=0.5)
    with pytest.raises(TypeError, match=r"^Net\(\) got an unexpected keyword argument 'width'"):
        type("Net", (M.Module,), {})(width=3)


def test_an_argument_that_ends_a_script_is_told():
    done = subprocess.run(
        [sys.executable, "-c", "import megengine.functional as F\nF.sum(F.ones((2, 3)), dim=1)"],
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith(
        "TypeError: sum() got an unexpected keyword argument 'dim'\n  fix: sum calls it axis\n"
    )


def test_whoever_shows_errors_still_does():
    program = "import sys; sys.excepthook = lambda *error: print('mine', *error[1].__notes__)\nimport megengine.functional as F; F.sum(1, dim=1)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
        == "mine   fix: sum calls it axis\n"
    )


def test_the_package_leaves_the_hook_alone():
    program = "import sys, megengine; assert sys.excepthook is sys.__excepthook__"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
